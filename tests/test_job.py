# SPDX-License-Identifier: Apache-2.0
"""Jobs under `shoal job-supervisor`: programs of Shoal in instances, as training scripts run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launching import SHOAL, needs_shoal
from ranks import ENVIRONMENT

pytestmark = needs_shoal

BUILD = SHOAL.parent
SOURCE = Path(os.environ.get("SHOAL_SOURCE", Path(__file__).resolve().parent.parent))


def supervise(folder, program, count, **members):
    """Runs a job to its end; its record and what each instance printed, without times."""
    hosts = [f"algo-{i + 1}" for i in range(count)]
    for host in hosts:
        config = folder / host / "ml/input/config"
        config.mkdir(parents=True)
        (config / "resourceconfig.json").write_text(
            json.dumps({"current_host": host, "hosts": hosts, "network_interface_name": "eth0"})
        )
    job = {
        "name": "trial",
        "program": [str(word) for word in program],
        "environment": {"PATH": os.environ["PATH"], "TRAINING_JOB_NAME": "trial"},
        "instances": [{"log": str(folder / f"{host}.log")} for host in hosts],
        **members,
    }
    (folder / "job.json").write_text(json.dumps(job))
    result = subprocess.run(
        [SHOAL, "job-supervisor", folder], capture_output=True, text=True, timeout=120, check=False
    )
    if result.returncode:
        if "this shoal was built without its service" in result.stderr:
            pytest.skip("built without the service")
        raise AssertionError(result.stdout + result.stderr)
    record = json.loads((folder / "exit.json").read_text())
    if "this user may not make" in record["failure_reason"]:
        pytest.skip(record["failure_reason"])
    logs = [(folder / f"{host}.log").read_text() for host in hosts]
    return record, ["".join(line[14:] + "\n" for line in log.splitlines()) for log in logs]


def shown(*paths):
    """Mounts of what lies where instances see nothing of the machine: homes and /tmp."""
    return [{"from": str(path), "to": str(path)} for path in dict.fromkeys(paths)]


def test_c_program_sums_over_two_instances(tmp_path):
    program = [SHOAL, "run", "--sagemaker", "-n", 2, "--", BUILD / "examples/allreduce"]
    record, logs = supervise(tmp_path, program, 2, mounts=shown(BUILD))
    assert (record["outcome"], record["failure_reason"]) == ("Completed", ""), logs
    for first, log in zip((0, 2), logs, strict=True):
        assert sorted(log.splitlines()) == [f"[{first + i}] 4 8 12 6" for i in (0, 1)]
    assert [instance["exit_code"] for instance in record["instances"]] == [0, 0]


def test_python_ranks_meet_over_eth0_by_name(tmp_path):
    code = tmp_path / "train.py"
    code.write_text(
        "import array, os, socket, shoal\n"
        "group = shoal.init()\n"
        "values = array.array('f', [1.0]) * 100_003\n"
        "group.allreduce(values, out=values)\n"
        "print(group.rank, group.size, socket.gethostname(), values[0], values[-1], flush=True)\n"
        "open('/opt/ml/model/model', 'w').write(str(values[0]))\n"
        "group.free()\n"
    )
    record, logs = supervise(
        tmp_path,
        [SHOAL, "run", "--sagemaker", "--no-tag", "--", sys.executable, "/opt/ml/code/train.py"],
        2,
        environment={"PATH": os.environ["PATH"], "PYTHONPATH": ENVIRONMENT["PYTHONPATH"],
                     "SHOAL_BUILD": str(BUILD), "TRAINING_JOB_NAME": "trial"},
        mounts=shown(BUILD, SOURCE, sys.base_prefix, sys.prefix)
        + [{"from": str(code), "to": "/opt/ml/code/train.py"}],
    )
    assert record["outcome"] == "Completed", (record, logs)
    assert logs == ["0 2 algo-1 2.0 2.0\n", "1 2 algo-2 2.0 2.0\n"]
    for host in ("algo-1", "algo-2"):
        assert (tmp_path / host / "ml/model/model").read_text() == "2.0"


def test_rank_that_dies_ends_the_job_with_its_words(tmp_path):
    script = "test $(hostname) = algo-1 || { echo no data here; exit 9; }; exec sleep 600"
    record, _ = supervise(
        tmp_path, [SHOAL, "run", "--sagemaker", "--", "sh", "-c", script], 2,
        mounts=shown(BUILD), failure_grace_s=20,
    )
    assert record["outcome"] == "Failed"
    assert "exited with code 9" in record["failure_reason"]
