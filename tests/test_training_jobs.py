# SPDX-License-Identifier: Apache-2.0
"""Training jobs by boto3: their whole life, and what goes wrong in it."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import botocore.exceptions
import pytest
from launching import DEADLINE_S
from services import Service, needs_service

pytestmark = needs_service

ENDED = ("Completed", "Failed", "Stopped")


class Jobs:
    """A service whose images are this machine itself, with a bucket, and a client."""

    def __init__(self, folder, images="* root=/\n", before=()):
        self.folder = folder
        self.before = before
        folder.mkdir(mode=0o700)
        (folder / "images.conf").write_text(images)
        (folder / "instances.conf").write_text("ml.all cores=all\n* cores=1/64 memory=1/64\n")
        self.start()
        self.service.client("s3").create_bucket(Bucket="data")

    def start(self):
        self.service = Service(self.folder, before=self.before)
        self.client = self.service.client("sagemaker", parameter_validation=False)

    def kill(self):
        self.service.process.kill()
        self.service.process.wait()

    def create(self, name, script, count=1, kind="ml.m5.large", keep=0, **members):
        resources = {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 1}
        if keep:
            resources["KeepAlivePeriodInSeconds"] = keep
        request = {
            "TrainingJobName": name,
            "RoleArn": "arn:aws:iam::000000000000:role/shoal",
            "AlgorithmSpecification": {
                "TrainingImage": "mine",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c"],
                "ContainerArguments": [script],
            },
            "OutputDataConfig": {"S3OutputPath": "s3://data/out/"},
            "ResourceConfig": resources,
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        }
        return self.client.create_training_job(**{**request, **members})["TrainingJobArn"]

    def describe(self, name):
        return self.client.describe_training_job(TrainingJobName=name)

    def wait(self, name, *states):
        """The job's description, once its status or secondary status is one of these."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            job = self.describe(name)
            if job["TrainingJobStatus"] in states or job["SecondaryStatus"] in states:
                return job
            assert job["TrainingJobStatus"] not in ENDED, job
            time.sleep(0.01)
        raise AssertionError(f"{name} is not {states}: {job}")

    def output(self, name):
        """Lines of each instance's log, the oldest file first."""
        files = sorted((self.folder / "logs" / name).glob("algo-*"))
        return [[line[14:] for line in file.read_text().splitlines()] for file in files]

    def go(self, name):
        """Makes the file /opt/ml/model/go in the first instance of a job that runs."""
        (folder,) = (self.folder / "jobs").glob(f"{name}.*")
        (folder / "algo-1/ml/model/go").touch()

    def wait_output(self, name, word):
        deadline = time.monotonic() + DEADLINE_S
        while not any(word in lines for lines in self.output(name)):
            assert time.monotonic() < deadline, self.describe(name)
            time.sleep(0.01)


def ended(it):
    """Ends what still runs; then the service ends in order."""
    listed = it.client.list_training_jobs(StatusEquals="InProgress", MaxResults=100)
    for job in listed["TrainingJobSummaries"]:
        it.client.stop_training_job(TrainingJobName=job["TrainingJobName"])
        it.wait(job["TrainingJobName"], *ENDED)
    assert it.service.stop() == (0, "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One service for tests that don't mind each other's jobs."""
    it = Jobs(tmp_path_factory.mktemp("shared") / "service")
    yield it
    ended(it)


@pytest.fixture
def jobs(tmp_path):
    it = Jobs(tmp_path / "service")
    yield it
    ended(it)


def refused(code, words, function, **request):
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        function(**request)
    error = caught.value.response["Error"]
    assert error["Code"] == code, error
    for word in words:
        assert word in error["Message"]


def transitions(job):
    return [step["Status"] for step in job["SecondaryStatusTransitions"]]


@pytest.fixture
def fetching(tmp_path, monkeypatch):
    """A service on a machine whose podman never comes to an end with an image."""
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\ncase $1 in\nimage) exit 1;;\n"
                      "pull) echo $$ > $0.pull; sleep 600;;\nesac\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    it = Jobs(tmp_path / "service", images="* container\n")
    yield it, tmp_path / "podman.pull"
    ended(it)


def test_stop_of_a_job_whose_image_is_being_fetched(fetching):
    jobs, pull = fetching
    jobs.create("far", "true")
    deadline = time.monotonic() + DEADLINE_S
    while not (pull.exists() and pull.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    jobs.client.stop_training_job(TrainingJobName="far")
    assert jobs.wait("far", *ENDED)["TrainingJobStatus"] == "Stopped"
    assert not Path(f"/proc/{pull.read_text().strip()}").exists()


def test_two_instances_run_to_the_end(shared):
    script = "cat /opt/ml/input/config/*.json; echo $(hostname) $TRAINING_JOB_NAME $A"
    arn = shared.create(
        "Two-1", script, count=2, HyperParameters={"lr": "0.1"}, Environment={"A": "b"}
    )
    assert arn == "arn:aws:sagemaker:us-east-1:000000000000:training-job/two-1"
    job = shared.wait("Two-1", *ENDED)
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Completed", job
    assert transitions(job)[0] == "Starting" and transitions(job)[-2:] == ["Uploading", "Completed"]
    assert "Training" in transitions(job)
    assert job["HyperParameters"] == {"lr": "0.1"} and job["OutputDataConfig"]["KmsKeyId"] == ""
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == "s3://data/out/Two-1/output/model.tar.gz"
    assert job["CreationTime"] <= job["TrainingStartTime"] <= job["TrainingEndTime"]
    for i, lines in enumerate(shared.output("Two-1"), 1):
        assert lines[-1].endswith(f"algo-{i} Two-1 b")
    deadline = time.monotonic() + DEADLINE_S
    while list((shared.folder / "jobs").glob("Two-1.*")):
        assert time.monotonic() < deadline


def test_failing_script_gives_its_last_words(shared):
    shared.create("bad", "echo before; echo 'ValueError: no such data' >&2; exit 3")
    job = shared.wait("bad", *ENDED)
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Failed"
    assert job["FailureReason"].startswith("AlgorithmError: ")
    assert "ValueError: no such data" in job["FailureReason"]
    assert job["FailureReason"].endswith("exit code: 3")


def test_stop_waits_for_the_script(shared):
    shared.create("long", "trap 'echo ending; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    shared.wait_output("long", "up")
    shared.client.stop_training_job(TrainingJobName="long")
    job = shared.wait("long", *ENDED)
    assert job["TrainingJobStatus"] == job["SecondaryStatus"] == "Stopped"
    assert "Stopping" in transitions(job)
    assert shared.output("long") == [["up", "ending"]]
    refused("ValidationException", ["Stopped"], shared.client.stop_training_job,
            TrainingJobName="long")


def test_what_is_refused(jobs):
    create, client = jobs.create, jobs.client
    arn = create("one", "sleep 60")
    refused("ResourceInUse", ["already exists", arn], create, name="One", script="")
    refused("ResourceInUse", ["InProgress"], client.delete_training_job, TrainingJobName="one")
    refused("ValidationException", ["Requested resource not found."],
            client.describe_training_job, TrainingJobName="none")
    refused("ValidationException", ["1 validation error detected", "Member must satisfy regular"],
            create, name="a_b", script="")
    refused("UnknownOperationException", ["ListLabelingJobs"], client.list_labeling_jobs)
    refused("ResourceLimitExceeded", [], create, name="big", script="", count=100, kind="ml.all")
    refused("ValidationException", ["no S3 bucket 'none'", "S3OutputPath"], create, name="two",
            script="", OutputDataConfig={"S3OutputPath": "s3://none/x"})
    refused("ValidationException", ["MaxWaitTimeInSeconds"], create, name="two", script="",
            StoppingCondition={"MaxRuntimeInSeconds": 9, "MaxWaitTimeInSeconds": 10})
    refused("ValidationException", ["KeepAlivePeriodInSeconds", "Spot"], create, name="two",
            script="", keep=9, EnableManagedSpotTraining=True)
    refused("ValidationException", ["shoal:priority"], create, name="two", script="",
            Tags=[{"Key": "shoal:priority", "Value": "high"}])
    assert [job["TrainingJobName"] for job in client.list_training_jobs()["TrainingJobSummaries"]] \
        == ["one"]


def test_bodies_that_are_none(shared):
    """No JSON, another type, too large: each is refused, and the service goes on."""
    client = shared.service.client("sagemaker", parameter_validation=False)
    body = []
    client.meta.events.register("before-call.sagemaker.DescribeTrainingJob",
                                lambda params, **_: params.update(body=body[-1]))
    for text, code in (
        (b'{"TrainingJobName": ', "SerializationException"),
        (b"[1]", "SerializationException"),
        (b'{"TrainingJobName": 7}', "SerializationException"),
        (b'{"TrainingJobName": "\xff"}', "SerializationException"),
        (b'{"TrainingJobName": "' + b"a" * (5 << 20) + b'"}', "RequestEntityTooLargeException"),
        (b"", "ValidationException"),
        (b"{}", "ValidationException"),
    ):
        body.append(text)
        refused(code, [], client.describe_training_job, TrainingJobName="x")


def test_tokens_that_are_none(shared):
    list_jobs, search = shared.client.list_training_jobs, shared.client.search
    for token in ("x", "1", "-", "9" * 40):
        refused("ValidationException", ["Invalid NextToken"], list_jobs, NextToken=token)
    refused("ValidationException", ["Invalid NextToken"], search, Resource="TrainingJob",
            NextToken="-1")


def test_queue_keeps_order_and_priority(jobs):
    go = "test -e /opt/ml/output/go || sleep 0.2; date +%s%N"
    jobs.create("first", "echo up; sleep 60", kind="ml.all")
    jobs.wait_output("first", "up")
    names = ["low", "high", "mid", "gone"]
    for name, priority in zip(names, (0, 0, 5, 9), strict=True):
        jobs.create(name, go, kind="ml.all",
                    Tags=[{"Key": "shoal:priority", "Value": str(priority)}])
        jobs.wait(name, "Pending")
    jobs.client.stop_training_job(TrainingJobName="gone")
    gone = jobs.wait("gone", *ENDED)
    assert gone["SecondaryStatus"] == "Stopped" and "TrainingStartTime" not in gone
    high = jobs.describe("high")["TrainingJobArn"]
    jobs.client.add_tags(ResourceArn=high, Tags=[{"Key": "shoal:priority", "Value": "7"}])
    jobs.client.stop_training_job(TrainingJobName="first")
    started = {name: jobs.wait(name, *ENDED)["TrainingStartTime"] for name in names[:3]}
    assert started["high"] < started["mid"] < started["low"]


def test_lists_tags_and_searches(jobs):
    client = jobs.client
    for i in range(5):
        jobs.create(f"job-{i}", f"exit {i % 2}", HyperParameters={"lr": f"0.{i}", "kind": "x"},
                    Tags=[{"Key": "team", "Value": "ab"[i % 2]}])
    for i in range(5):
        jobs.wait(f"job-{i}", *ENDED)

    def names(**filters):
        found, token = [], {}
        while True:
            page = client.list_training_jobs(MaxResults=2, **filters, **token)
            found += [job["TrainingJobName"][-1] for job in page["TrainingJobSummaries"]]
            if "NextToken" not in page:
                return "".join(found)
            token = {"NextToken": page["NextToken"]}

    def search(*filters, **more):
        found, token = [], {}
        expression = dict(more)
        if filters:
            expression["Filters"] = [dict(zip(("Name", "Operator", "Value"), one, strict=False))
                                     for one in filters]
        while True:
            page = client.search(Resource="TrainingJob", SearchExpression=expression,
                                 SortBy="TrainingJobName", SortOrder="Ascending", MaxResults=2,
                                 **token)
            found += [one["TrainingJob"]["TrainingJobName"][-1] for one in page["Results"]]
            if "NextToken" not in page:
                return "".join(found)
            token = {"NextToken": page["NextToken"]}

    assert names() == "43210" and names(SortOrder="Ascending") == "01234"
    assert names(SortBy="Name", SortOrder="Descending") == "43210"
    assert sorted(names(SortBy="Status")[:3]) != [] and names(NameContains="OB-3") == "3"
    assert names(StatusEquals="Failed") == "31" and names(StatusEquals="Stopped") == ""
    middle = jobs.describe("job-2")["CreationTime"]
    assert names(CreationTimeBefore=middle) == "10" and names(CreationTimeAfter=middle) == "43"

    assert search(("TrainingJobStatus", "Equals", "Failed")) == "13"
    team = ("Tags.team", "Equals", "a")
    assert search(("HyperParameters.lr", "GreaterThan", "0.15"), team) == "24"
    assert search(("HyperParameters.lr", "Equals", "0.10")) == "1"
    assert search(("FailureReason", "Contains", "exit code: 1")) == "13"
    assert search(("FailureReason", "NotExists")) == "024"
    assert search(("Tags.team", "Exists"), ("TrainingJobName", "In", "job-1,job-4")) == "14"
    assert search(("CreationTime", "GreaterThanOrEqualTo", middle.isoformat()[:23])) == "234"
    either = [{"Filters": [{"Name": "TrainingJobName", "Operator": "Equals", "Value": f"job-{i}"}]}
              for i in (0, 3)]
    assert search(SubExpressions=either, Operator="Or") == "03"
    nested = {"NestedPropertyName": "InputDataConfig", "Filters": [
        {"Name": "InputDataConfig.ChannelName", "Operator": "Equals", "Value": "train"}]}
    assert search(NestedFilters=[nested]) == ""
    refused("ValidationException", ["no time"], client.search, Resource="TrainingJob",
            SearchExpression={"Filters": [
                {"Name": "CreationTime", "Operator": "LessThan", "Value": "soon"}]})

    arn = jobs.describe("job-0")["TrainingJobArn"]
    tags = {"team": "c", "k": ""}
    client.add_tags(ResourceArn=arn, Tags=[{"Key": k, "Value": v} for k, v in tags.items()])
    client.delete_tags(ResourceArn=arn, TagKeys=["k"])
    assert client.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "c"}]
    client.delete_training_job(TrainingJobName="job-0")
    refused("ValidationException", ["not found"], client.list_tags, ResourceArn=arn)
    assert names() == "4321" and search(("HyperParameters.kind", "Equals", "x")) == "1234"
    jobs.create("job-0", "true")
    jobs.wait("job-0", "Completed")


def test_update_of_a_running_job(shared):
    """What can be updated is, and what the API does not know leaves no trace."""
    client = shared.service.client("sagemaker", parameter_validation=False)
    strange = {"FailureReason": "none", "Strange": {"a": 1}, "HyperParameters": {"lr": "9"}}
    client.meta.events.register(
        "before-call.sagemaker.UpdateTrainingJob",
        lambda params, **_: params.update(
            body=json.dumps(json.loads(params["body"]) | strange).encode()
        ),
    )
    shared.create("one", "sleep 60")
    client.update_training_job(TrainingJobName="one",
                               ResourceConfig={"KeepAlivePeriodInSeconds": 60})
    job = shared.describe("one")
    assert job["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
    assert job["ResourceConfig"]["InstanceCount"] == 1
    assert not set(strange) & set(job)


def pool_of(jobs, name, *statuses):
    """What is said of a job's warm pool, once it has one of these statuses."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        pool = jobs.describe(name).get("WarmPoolStatus")
        if pool is not None and pool["Status"] in statuses:
            return pool
        assert time.monotonic() < deadline, pool
        time.sleep(0.01)


def test_warm_pool_goes_from_a_job_to_the_next_one_like_it(jobs):
    client, cache = jobs.client, "/opt/ml/sagemaker/warmpoolcache/name"
    role = {"RoleArn": "arn:aws:iam::000000000000:role/other"}
    jobs.create("one", "hostname > " + cache + "; echo up;"
                " until test -e /opt/ml/model/go; do sleep 0.02; done", kind="ml.all", keep=900)
    jobs.wait_output("one", "up")
    assert jobs.describe("one")["WarmPoolStatus"] == {"Status": "InUse"}
    jobs.go("one")
    jobs.wait("one", "Completed")
    assert pool_of(jobs, "one", "Available") == {"Status": "Available"}
    refused("ResourceInUse", ["warm pool"], client.delete_training_job, TrainingJobName="one")
    jobs.create("other", "true", kind="ml.all", **role)
    jobs.wait("other", "Pending")
    jobs.create("two", "cat " + cache, kind="ml.all", keep=800)
    jobs.wait("two", "Completed")
    assert jobs.output("two") == [["algo-1"]]
    one = pool_of(jobs, "one", "Reused")
    assert one["ReusedByJob"] == "two" and one["ResourceRetainedBillableTimeInSeconds"] >= 0

    jobs.kill()
    jobs.start()
    client = jobs.client
    listed = client.list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"]
    assert [(job["TrainingJobName"], job["WarmPoolStatus"]["Status"]) for job in listed] \
        == [("two", "Available")]
    available = {"Name": "WarmPoolStatus.Status", "Operator": "Equals", "Value": "Available"}
    found = client.search(Resource="TrainingJob", SearchExpression={"Filters": [available]})
    assert [one["TrainingJob"]["TrainingJobName"] for one in found["Results"]] == ["two"]
    jobs.create("urgent", "true", kind="ml.all", Tags=[{"Key": "shoal:priority", "Value": "1"}],
                **role)
    for name in ("urgent", "other"):
        assert jobs.wait(name, *ENDED)["TrainingJobStatus"] == "Completed"
    assert "ReusedByJob" not in pool_of(jobs, "two", "Terminated")
    client.delete_training_job(TrainingJobName="one")


def test_a_job_that_follows_at_once_has_the_pool(shared):
    """Also while the folder of the one before, which is large, is still being removed."""
    shared.create("large", "cd /opt/ml/output; for i in $(seq 300); do : > $i; done", keep=900,
                  kind="ml.large")
    shared.wait("large", "Completed")
    shared.create("at-once", "true", kind="ml.large")
    assert pool_of(shared, "large", "Reused")["ReusedByJob"] == "at-once"
    shared.wait("at-once", "Completed")


def test_ends_of_warm_pools(shared):
    """A program that fails leaves one, which is kept as long as was said last."""
    others = set((shared.folder / "pools").glob("*"))
    shared.create("brief", "exit 0", keep=1, kind="ml.brief")
    shared.create("failing", "exit 3", keep=900, kind="ml.failing")
    shared.wait("failing", *ENDED)
    pool_of(shared, "failing", "Available")
    for seconds, status in ((950, "Available"), (0, "Terminated")):
        shared.client.update_training_job(
            TrainingJobName="failing", ResourceConfig={"KeepAlivePeriodInSeconds": seconds})
        pool_of(shared, "failing", status)
    refused("ValidationException", ["Failed"], shared.client.update_training_job,
            TrainingJobName="failing", ResourceConfig={"KeepAlivePeriodInSeconds": 5})
    brief = pool_of(shared, "brief", "Terminated")
    assert brief["ResourceRetainedBillableTimeInSeconds"] == 1
    deadline = time.monotonic() + DEADLINE_S
    while set((shared.folder / "pools").iterdir()) - others:
        assert time.monotonic() < deadline


def test_kill_of_the_service_while_a_job_runs(jobs):
    jobs.create("waits", "echo up; sleep 0.5; echo on", count=2)
    jobs.wait_output("waits", "up")
    jobs.kill()
    jobs.start()
    assert jobs.wait("waits", *ENDED)["TrainingJobStatus"] == "Completed"
    assert jobs.output("waits") == [["up", "on"]] * 2

    jobs.create("ends", "echo up; sleep 0.2; exit 7")
    jobs.wait_output("ends", "up")
    jobs.kill()
    (folder,) = (jobs.folder / "jobs").glob("ends.*")
    deadline = time.monotonic() + DEADLINE_S
    while not (folder / "exit.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (jobs.folder / "jobs" / "gone.99.1" / "algo-1").mkdir(parents=True)
    jobs.start()
    assert jobs.wait("ends", *ENDED)["FailureReason"].endswith("exit code: 7")
    while list((jobs.folder / "jobs").iterdir()):
        assert time.monotonic() < deadline


def test_kills_of_the_service_at_any_moment(jobs):
    """Jobs are created all the time while the service is killed: each that was accepted ends as it
    must, having run once."""
    accepted, stops = [], threading.Event()

    def create():
        for i in range(1000):
            if stops.is_set():
                return
            try:
                jobs.create(f"k-{i}", f"echo {i}; exit {i % 3}")
                accepted.append(i)
            except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError):
                pass

    thread = threading.Thread(target=create)
    thread.start()
    deadline = time.monotonic() + DEADLINE_S
    while not accepted:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for pause in (0.1, 0.15, 0.05, 0.2):
        time.sleep(pause)
        jobs.kill()
        jobs.start()
    stops.set()
    thread.join()
    for i in accepted:
        job = jobs.wait(f"k-{i}", *ENDED)
        assert job["TrainingJobStatus"] == ("Failed" if i % 3 else "Completed"), job
        assert jobs.output(f"k-{i}") == [[str(i)]], job
        assert transitions(job).count("Training") == 1


def supervisor_kill(jobs, name):
    """Ends the processes of a job as when the machine goes down."""
    (folder,) = (jobs.folder / "jobs").glob(f"{name}.*")
    for entry in os.listdir("/proc"):
        try:
            words = open(f"/proc/{entry}/cmdline").read().split("\0")
        except OSError:
            continue
        if "job-supervisor" in words and str(folder) in words:
            os.kill(int(entry), signal.SIGKILL)
            return
    raise AssertionError("no supervisor")


def test_lost_job_is_tried_again_where_that_was_asked_for(shared):
    shared.create("once", "echo up; sleep 60")
    shared.create("retry", "echo up; sleep 60", RetryStrategy={"MaximumRetryAttempts": 1})
    for name in ("once", "retry"):
        shared.wait_output(name, "up")
        supervisor_kill(shared, name)
    job = shared.wait("once", *ENDED)
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("InternalServerError: ")
    shared.wait("retry", "Restarting", "Training")
    deadline = time.monotonic() + DEADLINE_S
    while len(shared.output("retry")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "Restarting" in transitions(shared.wait("retry", "Training"))
    shared.client.stop_training_job(TrainingJobName="retry")
    assert shared.wait("retry", *ENDED)["TrainingJobStatus"] == "Stopped"


def test_limits_of_time(shared):
    """Of a running job; and of a spot job that was interrupted and waits."""
    shared.create(
        "spot", "echo up; sleep 60", EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 3, "MaxWaitTimeInSeconds": 3},
    )
    shared.wait_output("spot", "up")
    supervisor_kill(shared, "spot")
    shared.create("limited", "sleep 60", StoppingCondition={"MaxRuntimeInSeconds": 1})
    job = shared.wait("limited", *ENDED)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    job = shared.wait("spot", *ENDED)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")
    assert "Interrupted" in transitions(job)


def test_spot_job_leaves_for_another_and_comes_back(jobs):
    """Its checkpoint goes to the bucket, and is there again."""
    script = ("trap 'exit 0' TERM; cat /opt/ml/checkpoints/step 2>/dev/null && exit 0;"
              " echo 7 > /opt/ml/checkpoints/step; echo up; while :; do sleep 0.05; done")
    jobs.create("spot", script, kind="ml.all", EnableManagedSpotTraining=True,
                StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
                CheckpointConfig={"S3Uri": "s3://data/checkpoints"})
    jobs.wait_output("spot", "up")
    jobs.create("urgent", "echo here", kind="ml.all")
    assert jobs.wait("urgent", *ENDED)["TrainingJobStatus"] == "Completed"
    spot = jobs.wait("spot", *ENDED)
    assert spot["TrainingJobStatus"] == "Completed" and "Interrupted" in transitions(spot)
    assert jobs.output("spot") == [["up"], ["7"]]
    assert spot["TrainingEndTime"] > jobs.describe("urgent")["TrainingEndTime"]


ASK_THE_SERVICE = (
    "echo up; until test -e /opt/ml/model/go; do sleep 0.02; done; at=${AWS_ENDPOINT_URL#*//};"
    " exec bash -c \"exec 3<>/dev/tcp/${at%:*}/${at#*:};"
    " printf 'POST / HTTP/1.0\\r\\n\\r\\n' >&3; head -c 12 <&3\"")


def test_a_service_that_comes_back_on_another_port_has_the_jobs_and_they_have_it(jobs):
    """A service that ends in order leaves its jobs running."""
    jobs.create("one", ASK_THE_SERVICE)
    jobs.wait_output("one", "up")
    before = jobs.service.url
    assert jobs.service.stop() == (0, "")
    jobs.start()
    assert jobs.service.url != before
    jobs.go("one")
    assert jobs.wait("one", *ENDED)["TrainingJobStatus"] == "Completed"
    assert jobs.output("one") == [["up", "HTTP/1.1 403"]]


SMALL_DISK = """
mount -t tmpfs -o size=24m,mode=0700 tmpfs "$0"
echo '* root=/' > "$0"/images.conf
echo '* cores=1/64 memory=1/64' > "$0"/instances.conf
exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a small disk of its own")
def test_a_job_that_fills_the_disk_ends_and_the_next_one_runs(tmp_path):
    """What it has filled goes only when its end has been written, for which there is room."""
    folder = tmp_path / "service"
    jobs = Jobs(folder, before=["unshare", "-m", "sh", "-euc", SMALL_DISK, folder])
    jobs.create("fills", "cat /dev/zero > /opt/ml/model/all")
    job = jobs.wait("fills", *ENDED)
    assert job["TrainingJobStatus"] == "Failed"
    assert "No space left on device" in job["FailureReason"], job
    jobs.create("next", "echo fine > /opt/ml/model/word")
    assert jobs.wait("next", *ENDED)["TrainingJobStatus"] == "Completed"
    assert jobs.service.stop()[0] == 0
