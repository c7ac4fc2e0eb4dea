# SPDX-License-Identifier: Apache-2.0
"""`shoal job-start` in instances: what scripts, launchers and drivers of the SDKs find there."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest
from launching import SHOAL, needs_shoal

pytestmark = needs_shoal

needs_library = pytest.mark.skipif(
    bool(os.environ.get("SHOAL_SANITIZE")),
    reason="a sanitizer's library can't be loaded into Python",
)
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310"


class Job:
    """A training job as the service lays it out, run by its supervisor alone."""

    def __init__(self, folder, count=1, code=None, groups=None, image=None, **request):
        self.folder = folder
        hosts = [f"algo-{i + 1}" for i in range(count)]
        self.hosts = hosts
        self.groups = groups or [("homogeneousCluster", hosts)]
        resources = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": count}
        if groups:
            resources = {"InstanceGroups": [
                {"InstanceGroupName": name, "InstanceType": "ml.m5.large",
                 "InstanceCount": len(members)} for name, members in groups]}
        algorithm = {"TrainingImage": IMAGE, **request.pop("AlgorithmSpecification", {})}
        self.request = {"TrainingJobName": "trial", "AlgorithmSpecification": algorithm,
                        "ResourceConfig": resources, **request}
        self.image = image or f"python={sys.executable}"
        for host in hosts:
            for name, text in (code or {}).items():
                path = folder / host / "ml/code" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(text))
            self.configure(host)

    def configure(self, host):
        group = next(name for name, members in self.groups if host in members)
        files = {
            "hyperparameters": self.request.get("HyperParameters", {}),
            "inputdataconfig": {"train": {"TrainingInputMode": "File"}},
            "resourceconfig": {
                "current_host": host, "hosts": self.hosts, "network_interface_name": "eth0",
                "current_instance_type": "ml.p4d.24xlarge", "current_group_name": group,
                "instance_groups": [
                    {"instance_group_name": name, "instance_type": "ml.p4d.24xlarge",
                     "hosts": members} for name, members in self.groups]},
        }
        folder = self.folder / host / "ml/input/config"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))

    def describe(self):
        request, images = self.folder / "request.json", self.folder / "images.conf"
        request.write_text(json.dumps(self.request))
        images.write_text(f"* {self.image}\n")
        out = subprocess.run(
            [SHOAL, "job-start", "--describe", request, "--images", images],
            capture_output=True, text=True, timeout=60, check=False,
        )
        if "this shoal was built without its service" in out.stderr:
            pytest.skip("built without the service")
        assert out.returncode == 0, out.stderr
        return json.loads(out.stdout)

    def run(self, **members):
        """Its record, and what each instance printed, without times."""
        description = self.describe() | {"name": "trial", "failure_grace_s": 5, **members}
        for host, instance in zip(self.hosts, description["instances"], strict=True):
            instance["log"] = str(self.folder / f"{host}.log")
        (self.folder / "job.json").write_text(json.dumps(description))
        out = subprocess.run(
            [SHOAL, "job-supervisor", self.folder], capture_output=True, text=True, timeout=120,
            check=False,
        )
        assert out.returncode == 0, out.stderr
        record = json.loads((self.folder / "exit.json").read_text())
        if "this user may not make" in record["failure_reason"]:
            pytest.skip(record["failure_reason"])
        logs = [(self.folder / f"{host}.log").read_text() for host in self.hosts]
        self.logs = ["".join(line[14:] + "\n" for line in log.splitlines()) for log in logs]
        return record

    def completes(self):
        record = self.run()
        assert record["outcome"] == "Completed", (record, self.logs)
        return self.logs

    def output(self, name, host="algo-1"):
        return (self.folder / host / "ml" / name).read_text()


def hyperparameters(**values):
    """As the SDK writes them: every value is JSON in a text."""
    return {"sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": '"s3://bucket/trial/source/sourcedir.tar.gz"',
            "sagemaker_container_log_level": "20", "sagemaker_job_name": '"trial"',
            "sagemaker_region": '"us-east-1"',
            **{name: json.dumps(value) for name, value in values.items()}}


SHOW = """
    import json, os, sys
    with open("/opt/ml/model/shown.json", "w") as out:
        json.dump({"arguments": sys.argv[1:], "variables": dict(os.environ),
                   "folder": os.getcwd(), "python": sys.executable, "path": sys.path}, out)
"""


def test_script_gets_arguments_and_variables(tmp_path):
    values = hyperparameters(
        lr=0.1, epochs=3, big=1e5, name="a b", deep={"x": [1]}, none=None, flag=True)
    job = Job(tmp_path, code={"train.py": SHOW}, Environment={"MINE": "1"},
              HyperParameters=values | {"k": "raw", "list": "[1, 'a']"})
    job.completes()
    shown = json.loads(job.output("model/shown.json"))
    assert shown["arguments"] == [
        "--big", "100000.0", "--deep", "x=[1]", "--epochs", "3", "--flag", "True", "-k", "raw",
        "--list", "[1, 'a']", "--lr", "0.1", "--name", "a b", "--none", ""]
    variables = shown["variables"]
    expected = {
        "SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1", "SM_CHANNELS": '["train"]',
        "SM_CHANNEL_TRAIN": "/opt/ml/input/data/train", "SM_MODEL_DIR": "/opt/ml/model",
        "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data", "SM_HP_LR": "0.1", "SM_HP_NONE": "",
        "SM_HPS": '{"big":100000.0,"deep":{"x":[1]},"epochs":3,"flag":true,"k":"raw",'
                  '"list":"[1, \'a\']","lr":0.1,"name":"a b","none":null}',
        "SM_USER_ENTRY_POINT": "train.py", "SM_MODULE_NAME": "train", "SM_FRAMEWORK_PARAMS": "{}",
        "SM_MODULE_DIR": "s3://bucket/trial/source/sourcedir.tar.gz", "SM_NUM_GPUS": "0",
        "SM_NETWORK_INTERFACE_NAME": "eth0", "SM_CURRENT_INSTANCE_GROUP": "homogeneousCluster",
        "SM_LOG_LEVEL": "20", "SM_IS_HETERO": "false", "MASTER_ADDR": "algo-1",
        "TRAINING_JOB_NAME": "trial", "SAGEMAKER_JOB_NAME": "trial", "MINE": "1",
    }
    assert {name: variables.get(name) for name in expected} == expected
    all_of_it = json.loads(variables["SM_TRAINING_ENV"])
    assert all_of_it["channel_input_dirs"] == {"train": "/opt/ml/input/data/train"}
    assert all_of_it["hyperparameters"]["lr"] == 0.1 and all_of_it["job_name"] == "trial"
    assert json.loads(variables["SM_USER_ARGS"]) == shown["arguments"]
    assert shown["folder"] == "/opt/ml/code" and "/opt/ml/code" in shown["path"]
    assert job.output("output/success") == ""


def test_failing_script_leaves_its_last_words(tmp_path):
    code = {"train.py": "print('begins')\nraise ValueError('bad data')\n"}
    job = Job(tmp_path, code=code, HyperParameters=hyperparameters(lr=0.1))
    record = job.run()
    assert record["outcome"] == "Failed" and record["exit_code"] == 1
    reason = record["failure_reason"]
    assert reason.startswith('AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage "')
    assert "ValueError: bad data" in reason and "train.py --lr 0.1" in reason
    assert "begins\nTraceback (most recent call last):" in job.logs[0]


def test_script_hears_that_it_is_to_end(tmp_path):
    code = {"train.py": """
        import signal, sys, time
        def end(*_):
            open("/opt/ml/model/saved", "w").write("in time")
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        time.sleep(600)
        """}
    job = Job(tmp_path, code=code, HyperParameters=hyperparameters())
    assert job.run(max_runtime_s=1)["outcome"] == "MaxRuntimeExceeded"
    assert job.output("model/saved") == "in time"


def test_shell_script_is_an_entry_point(tmp_path):
    code = {"run.sh": '#!/bin/sh\necho "$@" "$SM_HP_NAME" > /opt/ml/model/said\nexit 7\n'}
    job = Job(tmp_path, code=code,
              HyperParameters=hyperparameters(name="it's") | {"sagemaker_program": "run.sh"})
    record = job.run()
    assert (record["outcome"], record["exit_code"]) == ("Failed", 7)
    assert job.output("model/said") == "--name it's it's\n"


def wheel(path, name, text):
    """A distribution of one module, ready to be installed."""
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path / f"{name}-1.0-py3-none-any.whl", "w") as out:
        out.writestr(f"{name}.py", text)
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: shoal\n"
                     "Root-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "")


def test_requirements_are_installed_before_the_script_runs(tmp_path):
    code = {"requirements.txt": "./little_part-1.0-py3-none-any.whl\n",
            "train.py": "import little_part, sys\nprint(little_part.WORD, little_part.__file__)\n"}
    job = Job(tmp_path, code=code, HyperParameters=hyperparameters())
    wheel(tmp_path / "algo-1/ml/code", "little_part", "WORD = 'installed'\n")
    last = job.completes()[0].splitlines()[-1]
    assert last.startswith("installed /run/shoal/python/lib/")


def test_requirements_that_are_not_there_are_the_failure(tmp_path):
    code = {"requirements.txt": "there-is-no-such-package\n", "train.py": "print('runs')\n"}
    record = Job(tmp_path, code=code, HyperParameters=hyperparameters(),
                 Environment={"PIP_NO_INDEX": "1"}).run()
    assert record["failure_reason"].startswith("AlgorithmError: InstallRequirementsError:")
    assert "there-is-no-such-package" in record["failure_reason"]


TORCH = """
    import os, torch, torch.distributed as dist
    import smdistributed.dataparallel.torch.torch_smddp
    dist.init_process_group("smddp")
    values = torch.full((1000,), float(dist.get_rank() + 1))
    dist.all_reduce(values)
    print(dist.get_rank(), dist.get_world_size(), os.environ["SM_CURRENT_HOST"], values[0].item())
    dist.destroy_process_group()
"""


@needs_library
def test_torch_sums_over_two_instances_as_data_parallel(tmp_path):
    pytest.importorskip("torch")
    way = {"sagemaker_distributed_dataparallel_enabled": True}
    logs = Job(tmp_path, count=2, code={"train.py": TORCH},
               HyperParameters=hyperparameters(**way)).completes()
    for rank, log in enumerate(logs):
        assert log.splitlines()[-1] == f"[{rank}] {rank} 2 algo-{rank + 1} 3.0", logs


SUM = """
    import array, os, shoal, sys
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
             "OMPI_COMM_WORLD_RANK", "GROUP_RANK", "FOO", "SM_CURRENT_HOST")
    with shoal.init() as group:
        values = array.array("f", [1.0]) * 1000
        group.allreduce(values)
        shown = " ".join(os.environ.get(name, "-") for name in names)
        sys.stdout.write(f"{shown} {values[0]} {' '.join(sys.argv[1:])}\\n")
"""


@needs_library
def test_mpi_starts_ranks_on_all_instances(tmp_path):
    way = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 2,
           "sagemaker_mpi_custom_mpi_options": "-x FOO=bar --mca btl tcp -verbose", "lr": 0.5}
    logs = Job(tmp_path, count=2, code={"train.py": SUM},
               HyperParameters=hyperparameters(**way)).completes()
    ranks = sorted(line for log in logs for line in log.splitlines() if line.startswith("["))
    assert ranks == [
        f"[{rank}] {rank} 4 {rank % 2} 2 algo-1 7777 {rank} - bar algo-{rank // 2 + 1} 4.0 --lr 0.5"
        for rank in range(4)], logs


@needs_library
def test_torch_distributed_gives_ranks_what_torchrun_gives(tmp_path):
    way = {"sagemaker_torch_distributed_enabled": True}
    logs = Job(tmp_path, count=2, code={"train.py": SUM},
               HyperParameters=hyperparameters(**way)).completes()
    assert [log.splitlines()[-1] for log in logs] == [
        f"{rank} 2 0 1 algo-1 7777 - {rank} - algo-{rank + 1} 2.0 " for rank in range(2)], logs


def test_failed_rank_is_the_reason_on_all_instances(tmp_path):
    code = {"train.py": "import os, time\nif os.environ['RANK'] == '1':\n"
                        "    raise SystemExit('no data here')\ntime.sleep(600)\n"}
    record = Job(tmp_path, count=2, code=code, HyperParameters=hyperparameters(
        sagemaker_mpi_enabled=True)).run()
    assert record["outcome"] == "Failed" and "no data here" in record["failure_reason"]


def test_ranks_are_started_in_the_groups_of_the_distribution_only(tmp_path):
    groups = [("data", ["algo-1"]), ("gpu", ["algo-2", "algo-3"])]
    code = {"train.py": "import os\nprint(os.environ.get('RANK'), os.environ.get('WORLD_SIZE'),"
                        " os.environ['SM_CURRENT_INSTANCE_GROUP'])\n"}
    logs = Job(tmp_path, count=3, groups=groups, code=code, HyperParameters=hyperparameters(
        sagemaker_mpi_enabled=True, sagemaker_distribution_instance_groups=["gpu"])).completes()
    last = [log.splitlines()[-1] for log in logs]
    assert last == ["None None data", "[0] 0 2 gpu", "[1] 1 2 gpu"]


def test_parameter_servers_have_a_cluster(tmp_path):
    code = {"train.py": "import os\nprint(os.environ['TF_CONFIG'])\n"}
    logs = Job(tmp_path, count=2, code=code, HyperParameters=hyperparameters(
        sagemaker_parameter_server_enabled=True)).completes()
    second = next(line for line in logs[1].splitlines() if line.startswith("{"))
    assert json.loads(second) == {
        "cluster": {"master": ["algo-1:2222"], "ps": ["algo-1:2223", "algo-2:2223"],
                    "worker": ["algo-2:2222"]},
        "environment": "cloud", "task": {"index": 0, "type": "worker"}}


def test_entry_point_of_a_request_runs_with_the_instances_python(tmp_path):
    words = {"ContainerEntrypoint": ["/bin/bash"],
             "ContainerArguments": ["-c", "command -v python3 pip torchrun; echo $SM_HOSTS; pwd"]}
    logs = Job(tmp_path, AlgorithmSpecification=words).completes()
    lines = logs[0].splitlines()
    assert lines[:2] == ["/run/shoal/python/bin/python3", "/run/shoal/python/bin/pip"]
    assert lines[-2:] == ["", "/opt/ml/code"]


ASK = ["-c", "env | grep -c _PROXY; exec 3<>/dev/tcp/10.77.0.1/3128 || exit 0;"
       "printf 'CONNECT 127.0.0.1:22 HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3"]


def test_internet_is_a_proxy_that_does_not_lead_to_the_machine(tmp_path):
    words = {"ContainerEntrypoint": ["/bin/bash"], "ContainerArguments": ASK}
    logs = Job(tmp_path, AlgorithmSpecification=words).completes()
    assert logs[0].split() == ["3", "HTTP/1.1", "403", "Forbidden"]


def test_isolated_job_has_no_way_out(tmp_path):
    words = {"ContainerEntrypoint": ["/bin/bash"], "ContainerArguments": ASK}
    logs = Job(tmp_path, AlgorithmSpecification=words, EnableNetworkIsolation=True).completes()
    assert logs[0].startswith("0\n") and "Connection refused" in logs[0]


def test_image_without_train_is_said(tmp_path):
    record = Job(tmp_path).run()
    assert (record["outcome"], record["exit_code"]) == ("Failed", 127)
    assert record["failure_reason"].startswith("AlgorithmError: CannotStartContainerError. Please")
    assert 'exec: "train": executable file not found in $PATH' in record["failure_reason"]


@pytest.fixture
def root(tmp_path):
    """A root folder of an image, with a shell and a program of its own."""
    folder = tmp_path / "image"
    for name in ("bin", "usr/bin", "lib", "lib64", "usr/lib", "opt/program", "tmp", "dev", "proc"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    ldd = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True)
    for word in ["/bin/sh", *(w for w in ldd.stdout.split() if w.startswith("/"))]:
        (folder / word[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(word, folder / word[1:])
    return folder


def test_own_image_trains_and_changes_only_its_own_copy(tmp_path, root):
    program = root / "usr/bin/train"
    program.write_text('#!/bin/sh\necho "$0 $# $WORD $TRAINING_JOB_NAME" > /opt/ml/model/said\n'
                       "echo changed > /opt/program/here || exit 3\n")
    program.chmod(0o755)
    Job(tmp_path / "job", image=f"root={root} WORD=w").completes()
    assert (tmp_path / "job/algo-1/ml/model/said").read_text() == "/usr/bin/train 0 w trial\n"
    assert list((root / "opt/program").iterdir()) == []


@pytest.mark.parametrize("code", [{}, {"mine": "the job's"}], ids=["image's code", "job's code"])
def test_what_an_image_holds_is_there(tmp_path, root, code):
    """Keys in /root, folders that servers want in /run, code in /opt/ml: as in a container."""
    program = root / "usr/bin/train"
    program.write_text("#!/bin/sh\nset -e\ncd /opt/ml/code\n"
                       "for file in /root/key /run/sshd/x /opt/ml/more/x; do\n"
                       "    read line < $file; echo $line; echo changed > $file\ndone\n"
                       "echo *; echo x > /opt/ml/code/new; echo x > /tmp/x; echo x > /home/x\n"
                       "echo x > /opt/ml/model/x\n")
    program.chmod(0o755)
    for name in ("root/key", "run/sshd/x", "opt/ml/more/x", "opt/ml/code/train.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n")
    before = sorted(root.rglob("*"))
    job = Job(tmp_path / "job", image=f"root={root}", code=code)
    assert job.completes() == [
        "root/key\nrun/sshd/x\nopt/ml/more/x\n" + ("mine\n" if code else "train.py\n")]
    assert job.output("model/x") == "x\n"
    assert sorted(root.rglob("*")) == before and (root / "root/key").read_text() == "root/key\n"


def test_own_image_without_train_is_said(tmp_path, root):
    record = Job(tmp_path / "job", image=f"root={root}").run()
    assert (record["outcome"], record["exit_code"]) == ("Failed", 127)
    assert "CannotStartContainerError. Please make sure" in record["failure_reason"]


def test_compiled_bindings_of_the_user_are_there(tmp_path, monkeypatch):
    cache = tmp_path / "cache" / "shoal"
    cache.mkdir(parents=True)
    (cache / "binding.so").write_text("bits")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code = {"train.py": """
        print(open("/root/.cache/shoal/binding.so").read())
        open("/root/.cache/shoal/another.so", "w").close()
    """}
    job = Job(tmp_path, code=code, HyperParameters=hyperparameters())
    assert job.completes()[0].splitlines()[-1] == "bits"
    assert [file.name for file in cache.iterdir()] == ["binding.so"]


@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not installed")
def test_container_image_is_fetched_and_unpacked(tmp_path, root):
    name = f"localhost/shoal-test-{os.getpid()}:1"
    program = root / "usr/bin/train"
    program.write_text('#!/bin/sh\necho "$PWD $WORD" > /opt/ml/model/said\n')
    program.chmod(0o755)
    pack = subprocess.run(["tar", "-C", root, "-c", "."], capture_output=True, check=True)
    changes = ["--change", "ENV WORD=w", "--change", "WORKDIR /opt/program"]
    subprocess.run(["podman", "import", "-q", *changes, "-", name], input=pack.stdout, check=True)
    try:
        job = Job(tmp_path / "job", image="container",
                  AlgorithmSpecification={"TrainingImage": name})
        job.completes()
    finally:
        subprocess.run(["podman", "rmi", name], check=True)
    assert job.output("model/said") == "/opt/program w\n"
