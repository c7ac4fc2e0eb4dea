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
from services import Service, needs_service

ROOT = Path(__file__).parent.parent


def sdk(name):
    """A parameter of tests: the name of an environment with this SDK."""
    group = {"v2": "demo", "v3": "sdk"}[name]
    reason = f"the SageMaker SDK {name} is not installed (tools/setup {group})"
    missing = pytest.mark.skipif(not interpreter(name).exists(), reason=reason)
    return pytest.param(name, marks=missing)


def interpreter(name):
    return ROOT / ".venv-sdk" / name / "bin" / "python"


pytestmark = [
    needs_service,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.parametrize("name", [sdk("v2"), sdk("v3")]),
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


def write_digits(file):
    """The digits of scikit-learn as the example's program reads them."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    digits = datasets.load_digits()
    rows = zip(digits.data.astype(int), digits.target, strict=True)
    file.write_text("".join(",".join(map(str, (*row, label))) + "\n" for row, label in rows))


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    """A service, and a script for each SDK that is there, which are its clients side by side."""
    folder = tmp_path_factory.mktemp("sdk")
    write_digits(folder / "digits.csv")
    service = Service(folder / "service")
    environment = service.environment("--front", HOME=str(folder))
    del environment["AWS_ENDPOINT_URL"], environment["SAGEMAKER_USER_CONFIG_OVERRIDE"]
    environment["SAGEMAKER_SUPPRESS_V2_WARNING"] = "1"
    words = ["-W", "ignore", "-c"]
    data = [folder / "digits.csv", ROOT / "examples" / "sdk" / "code"]
    scripts = {
        name: subprocess.Popen(
            [interpreter(name), *words, code, *data], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=(folder / name).open("w"),
        )
        for name, code in JOBS.items() if interpreter(name).exists()
    }
    yield service, scripts, folder
    for script in scripts.values():
        script.kill()
        script.communicate()
    assert service.stop() == (0, "")


@pytest.mark.skipif(
    bool(os.environ.get("SHOAL_SANITIZE")),
    reason="Python does not load a library that is built with a sanitizer",
)
def test_a_script_that_knows_of_no_service_trains_on_two_instances(clients, name):
    service, scripts, folder = clients
    out, _ = scripts[name].communicate(timeout=300)
    assert scripts[name].returncode == 0, (folder / name).read_text()
    said = [line for line in out.splitlines() if " INFO " not in line]
    bucket, key = said[-1].removeprefix("s3://").split("/", 1)
    job = key.split("/")[-3]
    assert bucket == "sagemaker-us-east-1-000000000000"
    events = service.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{job}/algo-1"
    )["events"]
    assert any("accuracy=0." in event["message"] for event in events), events
    model = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    assert tarfile.open(fileobj=io.BytesIO(model)).getnames() == ["model.pt"]
