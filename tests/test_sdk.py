# SPDX-License-Identifier: Apache-2.0
"""The SageMaker SDKs, unmodified, as clients of `shoal serve`, by scripts without a configuration.

`make demo` runs one by the service's address.
"""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from services import needs_service, service

__all__ = ["service"]
ROOT = Path(__file__).parent.parent
ENVIRONMENTS = ROOT / ".venv-sdk"


def sdk(name):
    """A parameter of tests: the interpreter with this SDK."""
    python = ENVIRONMENTS / name / "bin" / "python"
    group = {"v2": "demo", "v3": "sdk"}[name]
    reason = f"the SageMaker SDK {name} is not installed (tools/setup {group})"
    missing = pytest.mark.skipif(not python.exists(), reason=reason)
    return pytest.param(python, id=name, marks=missing)


pytestmark = [
    needs_service,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.parametrize("python", [sdk("v2"), sdk("v3")]),
]

# As the programs in examples/sdk, without the SDKs' waiting of seconds between two looks.
JOBS = {
    "v2": """
import logging, sys
logging.disable(logging.INFO)
import sagemaker
from sagemaker.pytorch import PyTorch
session = sagemaker.Session()
estimator = PyTorch(
    entry_point="train.py", source_dir=sys.argv[2], instance_type="ml.p4d.24xlarge",
    instance_count=2, framework_version="2.0.1", py_version="py310",
    distribution={"smdistributed": {"dataparallel": {"enabled": True}}},
    hyperparameters={"epochs": 3}, sagemaker_session=session, role=sagemaker.get_execution_role(),
)
estimator.fit(session.upload_data(sys.argv[1], key_prefix="digits"), wait=False)
job = estimator.latest_training_job.name
session.wait_for_job(job, poll=0.2)
print(estimator.model_data)
""",
    "v3": """
import logging, sys, time
logging.disable(logging.INFO)
from sagemaker.core.helper.session_helper import Session, get_execution_role
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import Torchrun
session = Session()
trainer = ModelTrainer(
    sagemaker_session=session, base_job_name="digits",
    training_image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310",
    source_code=SourceCode(source_dir=sys.argv[2], entry_script="train.py"),
    compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=2),
    distributed=Torchrun(), hyperparameters={"epochs": 3},
    role=get_execution_role(),
)
data = session.upload_data(sys.argv[1], session.default_bucket(), key_prefix="digits")
trainer.train([InputData(channel_name="training", data_source=data)], wait=False)
job = trainer._latest_training_job
while job.refresh().training_job_status == "InProgress":
    time.sleep(0.2)
assert job.training_job_status == "Completed", job.failure_reason
print(job.model_artifacts.s3_model_artifacts)
""",
}


def run(python, code, environment, *arguments):
    out = subprocess.run(
        [python, "-W", "ignore", "-c", code, *map(str, arguments)],
        env=environment | {"SAGEMAKER_SUPPRESS_V2_WARNING": "1"},
        capture_output=True, text=True, timeout=300,
    )
    assert out.returncode == 0, out.stderr
    return [line for line in out.stdout.splitlines() if " INFO " not in line]


def write_digits(file):
    """The digits of scikit-learn as the example's program reads them."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    digits = datasets.load_digits()
    rows = zip(digits.data.astype(int), digits.target, strict=True)
    file.write_text("".join(",".join(map(str, (*row, label))) + "\n" for row, label in rows))


@pytest.mark.skipif(
    bool(os.environ.get("SHOAL_SANITIZE")),
    reason="Python does not load a library that is built with a sanitizer",
)
def test_a_script_that_knows_of_no_service_trains_on_two_instances(service, python, tmp_path):
    version = python.parent.parent.name
    write_digits(tmp_path / "digits.csv")
    source = ROOT / "examples" / "sdk" / "code"
    environment = service.environment("--front", HOME=str(tmp_path))
    del environment["AWS_ENDPOINT_URL"], environment["SAGEMAKER_USER_CONFIG_OVERRIDE"]
    said = run(python, JOBS[version], environment, tmp_path / "digits.csv", source)
    bucket, key = said[-1].removeprefix("s3://").split("/", 1)
    job = key.split("/")[-3]
    assert bucket == "sagemaker-us-east-1-000000000000"
    events = service.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{job}/algo-1"
    )["events"]
    assert any("accuracy=0." in event["message"] for event in events), events
    model = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    assert tarfile.open(fileobj=io.BytesIO(model)).getnames() == ["model.pt"]
