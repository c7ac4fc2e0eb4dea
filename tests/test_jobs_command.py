# SPDX-License-Identifier: Apache-2.0
"""`shoal submit, jobs, describe, logs, stop` with a service, and what clients read of its logs and
metrics meanwhile.
"""

import json
import os
import signal
import subprocess
import time

import botocore.session
import pytest
from botocore.exceptions import ClientError
from launching import DEADLINE_S, SHOAL
from services import Service, needs_service

pytestmark = needs_service

GROUP = "/aws/sagemaker/TrainingJobs"
SCRIPT = """
import argparse, os, signal, sys, time
options = argparse.ArgumentParser()
options.add_argument("--lines", type=int, default=3)
options.add_argument("--word", default="none")
options.add_argument("--end", default="well")
options.add_argument("--model")
options = options.parse_args()
host = os.environ["SM_CURRENT_HOST"]
print("begin", host, options.word, os.environ.get("MARK"), flush=True)
if "RANK" in os.environ:
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
for i in range(options.lines):
    print(f"{host} line {i} loss={1 / (i + 1):.2f}", flush=True)
    time.sleep(0.02)
if options.end == "never":
    signal.pause()
if options.end == "badly":
    raise ValueError("no good")
data = "/opt/ml/input/data/digits/a.txt"
if os.path.exists(data):
    print("data", open(data).read(), flush=True)
if options.model:
    open("/opt/ml/model/model", "w").write(options.model)
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    it = Service(tmp_path_factory.mktemp("jobs") / "service")
    yield it
    assert it.stop() == (0, "")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("left out")
    (folder / "data").mkdir()
    (folder / "data" / "a.txt").write_text("seven")
    return folder


def command(service, *words):
    words = [str(word) for word in words]
    return [SHOAL, words[0], "--dir", service.folder, *words[1:]]


def shoal(service, *words):
    out = subprocess.run(
        command(service, *words), capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    if "this user may not make" in out.stderr:
        pytest.skip(out.stderr)
    return out


def submit(service, *words):
    """Submits and doesn't wait; the job's name."""
    out = shoal(service, "submit", *words)
    assert (out.returncode, out.stderr) == (0, "")
    return out.stdout.strip()


@pytest.fixture(scope="module")
def measured(service, source):
    """The name of a job with a metric, a priority and a model that has completed."""
    name = submit(service, source / "train.py", "-m", "loss=loss=([0-9.]+)", "--priority", 7,
                  "--", "--model", "m")
    assert shoal(service, "logs", "-f", name).returncode == 0
    return name


def own_lines(text):
    """Without the line with which a job's start says what it runs."""
    return [line for line in text.splitlines() if "shoal: /" not in line]


def test_a_followed_job_prints_its_lines_and_ends_with_its_status(service, source):
    begun = time.monotonic()
    out = shoal(service, "submit", source / "train.py", "-f", "-e", "MARK=here",
                "--", "--lines", 2, "--word", "two words")
    seconds = time.monotonic() - begun
    assert out.returncode == 0, out.stderr
    assert own_lines(out.stdout) == [
        "begin algo-1 two words here", "algo-1 line 0 loss=1.00", "algo-1 line 1 loss=0.50"
    ]
    statuses = [line.split()[2].rstrip(":") for line in out.stderr.splitlines()[1:]]
    assert statuses[0] == "Starting" and statuses[-3:] == ["Training", "Uploading", "Completed"]
    print(f"a job of 40 ms took {seconds:.3f} s from its submission to its end")


def test_instances_are_interleaved_and_data_is_uploaded(service, source):
    out = shoal(service, "submit", source, "-n", 2, "-f", "-i", f"digits={source / 'data'}",
                "--name", "two-hosts", "--", "--lines", 1)
    assert out.returncode == 0, out.stderr
    lines = own_lines(out.stdout)
    for host in ("algo-1", "algo-2"):
        assert [line for line in lines if line.startswith(f"{host} | ")] == [
            f"{host} | begin {host} none None", f"{host} | {host} line 0 loss=1.00",
            f"{host} | data seven",
        ]
    one = shoal(service, "logs", "--instance", "algo-2", "two-hosts").stdout
    assert own_lines(one) == [line for line in lines if line.startswith("algo-2")]
    last = shoal(service, "logs", "--tail", 2, "two-hosts").stdout
    assert last == "".join(f"{line}\n" for line in lines[-2:])
    assert shoal(service, "logs", "--tail", 0, "two-hosts").stdout == ""
    assert shoal(service, "logs", "--since", int(time.time()) + 60, "two-hosts").stdout == ""
    timed = shoal(service, "logs", "-t", "--since", "1h", "two-hosts").stdout.splitlines()
    assert [line[24:] for line in timed if "shoal: /" not in line] == lines
    assert [line[:23] for line in timed] == sorted(line[:23] for line in timed)


@pytest.mark.parametrize("how", ["smddp", "mpi", "torchrun"])
def test_each_distribution_starts_as_many_ranks_as_were_asked_for(service, source, how):
    out = shoal(service, "submit", source / "train.py", "-f", "--distribution", how,
                "--processes", 2, "--", "--lines", 0)
    assert out.returncode == 0, out.stderr
    ranks = [line.split("rank ")[1] for line in out.stdout.splitlines() if "rank " in line]
    assert sorted(ranks) == ["0 of 2", "1 of 2"]


def test_a_failed_job_fails_the_command_too(service, source):
    out = shoal(service, "submit", source / "train.py", "-f", "--name", "failing",
                "-p", "end=badly", "-p", "lines=1")
    assert out.returncode == 1
    assert "ValueError: no good" in out.stdout
    assert "Failed: Training job failed" in out.stderr and "no good" in out.stderr
    assert shoal(service, "logs", "-f", "failing").returncode == 1
    assert shoal(service, "logs", "failing").returncode == 0
    text = shoal(service, "describe", "failing").stdout
    assert "Status           Failed (Failed)" in text and "no good" in text


def test_lines_come_while_the_job_runs_and_it_can_be_stopped(service, source):
    words = ["submit", source / "train.py", "-f", "--name", "endless", "--", "--end", "never"]
    with subprocess.Popen(command(service, *words), stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL) as follower:
        lines = [follower.stdout.readline() for _ in range(5)]
        assert lines[-1] == "algo-1 line 2 loss=0.33\n"
        listed = json.loads(shoal(service, "jobs", "--json", "-s", "InProgress").stdout)
        assert [job["TrainingJobName"] for job in listed] == ["endless"]
        follower.send_signal(signal.SIGINT)
        assert follower.wait(DEADLINE_S) == 130
    with subprocess.Popen(command(service, "logs", "-f", "--tail", 1, "endless"),
                          stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout.readline() == "algo-1 line 2 loss=0.33\n"
        out = shoal(service, "stop", "--wait", "endless")
        assert (out.returncode, out.stdout) == (0, "endless: Stopped\n")
        assert follower.wait(DEADLINE_S) == 3
    assert shoal(service, "stop", "endless").returncode == 0


def test_jobs_and_describe_show_what_the_api_says(service, measured):
    name = measured
    described = json.loads(shoal(service, "describe", "--json", name).stdout)
    assert [(m["MetricName"], m["Value"]) for m in described["FinalMetricDataList"]] == [
        ("loss", 0.33)
    ]
    text = shoal(service, "describe", name).stdout
    assert "Metrics          loss = 0.33" in text and "sagemaker_program" not in text
    assert f"Model            s3://shoal/{name}/output/model.tar.gz" in text
    table = shoal(service, "jobs", "--name", name).stdout.splitlines()
    assert table[0].split() == ["NAME", "STATUS", "CREATED", "TIME"]
    assert table[1].split()[:2] == [name, "Completed"] and len(table) == 2
    assert json.loads(shoal(service, "jobs", "--name", "no-such-job", "--json").stdout) == []


def test_a_job_that_leaves_no_model_has_no_address_of_one(service, source):
    for end, said in (("well", "\nModel            none"), ("badly", "")):
        words = ["--name", f"no-model-{end}", "--", "--end", end, "--lines", 0]
        shoal(service, "submit", source / "train.py", "-f", *words)
        text = shoal(service, "describe", f"no-model-{end}").stdout
        assert text.count("\nModel") == bool(said) and said in text, text


def test_instances_are_kept_for_the_next_job(service, source):
    words = ["submit", source / "train.py", "-f", "-t", "ml.kept", "--keep-alive", 900]
    for name in ("first", "second"):
        assert shoal(service, *words, "--name", name, "--", "--lines", 0).returncode == 0
    described = json.loads(shoal(service, "describe", "--json", "second").stdout)
    assert described["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 900
    assert "Warm pool        Reused" in shoal(service, "describe", "first").stdout
    assert "Warm pool        Available" in shoal(service, "describe", "second").stdout
    service.client("sagemaker").update_training_job(
        TrainingJobName="second", ResourceConfig={"KeepAlivePeriodInSeconds": 0})


def test_every_command_speaks_json(service, source):
    out = shoal(service, "submit", source / "train.py", "-n", 2, "-f", "--json", "--name", "spoken",
                "--", "--lines", 1)
    created, end = json.JSONDecoder().raw_decode(out.stdout)
    assert created["TrainingJobName"] == "spoken"
    followed = [json.loads(line) for line in out.stdout[end:].splitlines() if line]
    assert followed == [
        json.loads(line) for line in shoal(service, "logs", "--json", "spoken").stdout.splitlines()
    ]
    assert {"algo-1", "algo-2"} == {line["instance"] for line in followed}
    last = max(followed, key=lambda line: line["message"].endswith("loss=1.00"))
    assert last["message"] == f"{last['instance']} line 0 loss=1.00"
    assert abs(last["timestamp"] / 1000 - time.time()) < DEADLINE_S
    stopped = shoal(service, "stop", "--json", "spoken", "none")
    assert stopped.returncode == 1 and "there is no job 'none'" in stopped.stderr
    assert json.loads(stopped.stdout) == [
        {"TrainingJobName": "spoken", "TrainingJobStatus": "Completed"}
    ]


def test_sdks_read_the_same_logs_and_metrics(service, measured):
    name = measured
    logs, metrics = service.client("logs"), service.client("cloudwatch")
    streams = logs.describe_log_streams(
        logGroupName=GROUP, logStreamNamePrefix=f"{name}/", orderBy="LogStreamName", limit=1
    )["logStreams"]
    assert [s["logStreamName"].rsplit("-", 1)[0] for s in streams] == [f"{name}/algo-1"]
    asked = {"logGroupName": GROUP, "logStreamName": streams[0]["logStreamName"]}
    page, lines = {"nextForwardToken": None}, []
    while True:
        token = page["nextForwardToken"]
        page = logs.get_log_events(
            **asked, startFromHead=True, limit=2, **({"nextToken": token} if token else {})
        )
        lines += [event["message"] for event in page["events"]]
        if page["nextForwardToken"] == token:
            break
    assert own_lines("\n".join(lines))[1:] == [
        f"algo-1 line {i} loss={1 / (i + 1):.2f}" for i in range(3)
    ]
    found = logs.filter_log_events(
        logGroupName=GROUP, logStreamNamePrefix=f"{name}/", filterPattern='"line 1"'
    )["events"]
    assert [event["message"] for event in found] == ["algo-1 line 1 loss=0.50"]
    now = time.time()
    points = metrics.get_metric_statistics(
        Namespace=GROUP, MetricName="loss", Period=60, Statistics=["SampleCount", "Maximum"],
        Dimensions=[{"Name": "TrainingJobName", "Value": name}],
        StartTime=now - 600, EndTime=now + 60,
    )["Datapoints"]
    assert sum(point["SampleCount"] for point in points) == 3
    assert max(point["Maximum"] for point in points) == 1.0
    with pytest.raises(logs.exceptions.ResourceNotFoundException) as error:
        logs.get_log_events(logGroupName=GROUP, logStreamName=f"{name}/algo-9-1")
    assert error.value.response["Error"]["Message"] == "The specified log stream does not exist."


def older_metrics_client(service):
    """CloudWatch's client as botocore had it before 1.42.7: requests are forms, replies XML."""
    session = botocore.session.Session()
    model = session.get_component("data_loader").load_service_model("cloudwatch", "service-2")
    model["metadata"].update(protocol="query", protocols=["query"])  # the loader keeps it
    client = session.create_client(
        "cloudwatch", endpoint_url=service.url, region_name="us-east-1",
        aws_access_key_id=service.key, aws_secret_access_key=service.secret,
    )
    assert client.meta.service_model.resolved_protocol == "query"
    return client


def test_older_sdks_read_the_same_metrics(service, measured):
    now, found = int(time.time()), []
    metric = {
        "Namespace": GROUP, "MetricName": "loss",
        "Dimensions": [{"Name": "TrainingJobName", "Value": measured}],
    }
    times = {"StartTime": now - 600, "EndTime": now + 60}
    for client in (service.client("cloudwatch"), older_metrics_client(service)):
        with pytest.raises(ClientError) as error:
            client.get_metric_statistics(Period=61, Statistics=["Sum"], **metric, **times)
        with pytest.raises(ClientError) as missing:
            client.list_dashboards()
        wanted = {"Id": "m", "MetricStat": {"Metric": metric, "Period": 1, "Stat": "Average"}}
        data = client.get_metric_data(MetricDataQueries=[wanted], ScanBy="TimestampAscending",
                                      **times)["MetricDataResults"]
        found.append((
            client.get_metric_statistics(Period=60, Statistics=["SampleCount", "Maximum"],
                                         **metric, **times)["Datapoints"],
            data, client.list_metrics(Dimensions=metric["Dimensions"])["Metrics"],
            error.value.response["Error"]["Code"], error.value.response["Error"]["Message"],
            "'ListDashboards'" in str(missing.value),
        ))
    assert found[0] == found[1] and found[0][0] and found[0][1][0]["Values"] and found[0][-1]


WRONG = [
    (["submit"], 2, "no script or folder"),
    (["submit", "none.py"], 2, "cannot open none.py"),
    (["submit", "{source}/data"], 2, "--entry names the script"),
    (["submit", "{script}", "--distribution", "magic"], 2, "smddp, mpi or torchrun"),
    (["submit", "{script}", "--processes", "2"], 2, "goes with --distribution"),
    (["submit", "{script}", "--", "word"], 2, "'word' behind -- has no option"),
    (["submit", "{script}", "--", "--flag"], 2, "'--flag' behind -- has no value"),
    (["submit", "{script}", "-e", "A"], 2, "NAME=VALUE"),
    (["submit", "{script}", "--keep-alive", "21601"], 2, "0 to 21600"),
    (["submit", "{script}", "-i", "x=/no/such"], 2, "there is no such folder"),
    (["submit", "{script}", "-o", "models"], 2, "s3://bucket/prefix"),
    (["submit", "{script}", "-o", "s3://nobodys/"], 1, "NoSuchBucket"),
    (["submit", "{script}", "-m", "a=("], 1, "Invalid regular expression '('"),
    (["submit", "{script}", "--name", "a_b"], 1, "regular expression pattern"),
    (["jobs", "word"], 2, "'word' is not understood"),
    (["jobs", "--status", "Lost"], 1, "enum value set"),
    (["describe"], 2, "no job's name"),
    (["describe", "none"], 1, "there is no job 'none'"),
    (["logs", "none"], 1, "there is no job 'none'"),
    (["logs", "-i", "zero", "none"], 2, "--instance"),
    (["logs", "--since", "yesterday", "none"], 2, "--since yesterday"),
    (["stop", "none"], 1, "there is no job 'none'"),
]


@pytest.mark.parametrize(("words", "code", "text"), WRONG)
def test_what_is_wrong_is_said(service, source, words, code, text):
    words = [word.format(source=source, script=source / "train.py") for word in words]
    out = shoal(service, *words)
    assert out.returncode == code, out
    assert out.stderr.startswith(f"shoal {words[0]}: ") and text in out.stderr
    assert out.stdout == ""


def test_followers_outlive_the_service(tmp_path, source):
    first = Service(tmp_path / "service")
    words = ["submit", source / "train.py", "-f", "--", "--lines", 50]
    with subprocess.Popen(command(first, *words), stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE) as follower:
        lines = [follower.stdout.readline() for _ in range(4)]
        assert lines[-1].startswith("algo-1 line")
        first.process.kill()
        first.process.wait(DEADLINE_S)
        while "waiting for it" not in follower.stderr.readline():
            assert follower.poll() is None
        second = Service(tmp_path / "service")
        lines += follower.stdout.readlines()
        assert follower.wait(DEADLINE_S) == 0
    assert [line for line in lines if " line " in line] == [
        f"algo-1 line {i} loss={1 / (i + 1):.2f}\n" for i in range(50)
    ]
    assert second.stop() == (0, "")


def test_without_a_service_its_absence_is_named(tmp_path):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    for words, more, text in (
        (["jobs"], {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}, "start `shoal serve`"),
        (["jobs", "--dir", tmp_path], {}, "no service runs in"),
        (["jobs"], {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "cannot reach http://127.0.0.1:9"),
    ):
        out = subprocess.run([SHOAL, *words], capture_output=True, text=True, check=False,
                             env=environment | more, timeout=DEADLINE_S)
        assert out.returncode == 1 and text in out.stderr


@pytest.mark.parametrize("name", ["submit", "jobs", "describe", "logs", "stop"])
def test_help_has_an_example(name):
    out = subprocess.run([SHOAL, name, "--help"], capture_output=True, text=True, check=True)
    assert out.stdout.startswith(f"usage: shoal {name}") and f"\n  shoal {name} " in out.stdout
