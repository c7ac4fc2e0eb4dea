# SPDX-License-Identifier: Apache-2.0
"""The SageMaker SDKs, unmodified, as clients of `shoal serve`: by its address, and by the front."""

import subprocess
from pathlib import Path

import pytest
from services import needs_service, service

__all__ = ["service"]
ENVIRONMENTS = Path(__file__).parent.parent / ".venv-sdk"


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

# The name of Session and of get_execution_role in both.
SESSION = """
import logging, sys
logging.disable(logging.INFO)
try:
    from sagemaker.core.helper.session_helper import Session, get_execution_role
except ImportError:
    from sagemaker import Session, get_execution_role
session = Session()
bucket = session.default_bucket()
print(bucket)
print(session.upload_data(sys.argv[1], bucket, key_prefix="data"))
print(session.read_s3_file(bucket, "data/digits.csv"))
"""
ASK_STS = "print(get_execution_role())\n"
ROLE = "arn:aws:iam::000000000000:role/shoal"


def run(python, code, environment, *arguments):
    out = subprocess.run(
        [python, "-W", "ignore", "-c", code, *map(str, arguments)],
        env=environment | {"SAGEMAKER_SUPPRESS_V2_WARNING": "1"},
        capture_output=True, text=True, timeout=120,
    )
    assert out.returncode == 0, out.stderr
    return [line for line in out.stdout.splitlines() if " INFO " not in line]


@pytest.fixture
def digits(tmp_path):
    file = tmp_path / "digits.csv"
    file.write_text("1,2,3")
    return file


def test_a_session_by_the_service_s_address(service, python, digits):
    said = run(python, SESSION, service.environment(), digits)
    assert said == ["shoal", "s3://shoal/data/digits.csv", "1,2,3"]


def test_a_session_that_knows_of_no_service(service, python, digits, tmp_path):
    environment = service.environment("--front", HOME=str(tmp_path))
    del environment["AWS_ENDPOINT_URL"], environment["SAGEMAKER_USER_CONFIG_OVERRIDE"]
    bucket = "sagemaker-us-east-1-000000000000"
    said = run(python, SESSION + ASK_STS, environment, digits)
    assert said == [bucket, f"s3://{bucket}/data/digits.csv", "1,2,3", ROLE]
