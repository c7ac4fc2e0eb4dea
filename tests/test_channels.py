# SPDX-License-Identifier: Apache-2.0
"""What goes in and out of training jobs, by boto3: two instances read channels of every kind."""

import gzip
import io
import tarfile
import time

import pytest
from launching import DEADLINE_S
from services import Service, needs_service

pytestmark = needs_service

ENDED = ("Completed", "Failed", "Stopped")

# Runs in both instances. What it sees goes in the model, so that the test can look at it.
SCRIPT = r"""
set -e
cd /opt/ml/input/data
out=/opt/ml/model/$(hostname)
mkdir $out
cp -r file fast shard gzip shared $out
echo changed > file/a.csv && chmod 700 file/d.csv || exit 3
(echo x > fast/a.csv) 2>/dev/null && exit 5
(echo x > shared/new) 2>/dev/null && exit 4
cat pipe_0 > $out/epoch-0
head -c 3 pipe_1 > $out/epoch-1
cat pipe_2 > $out/epoch-2
cp /opt/ml/points/start $out/start
echo $(hostname) > /opt/ml/points/made-by-$(hostname)
echo curve > /opt/ml/output/data/curve-$(hostname)
ln -s /etc/passwd $out/passwd
cp /opt/ml/input/config/inputdataconfig.json $out
"""


def channel(name, uri, mode="File", distribution="FullyReplicated", **members):
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": distribution}
    return {
        "ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}, **members,
    }


def create(client, name, script, inputs=(), count=2, output="s3://data/out/", **members):
    if inputs:
        members["InputDataConfig"] = inputs
    client.create_training_job(
        TrainingJobName=name, RoleArn="arn:aws:iam::000000000000:role/shoal",
        AlgorithmSpecification={
            "TrainingImage": "mine", "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c"], "ContainerArguments": [script],
        },
        OutputDataConfig={"S3OutputPath": output},
        ResourceConfig={
            "InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1,
        },
        StoppingCondition={"MaxRuntimeInSeconds": 60}, **members,
    )


def ended(client, name):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        job = client.describe_training_job(TrainingJobName=name)
        if job["TrainingJobStatus"] in ENDED:
            return job
        time.sleep(0.02)
    raise AssertionError(job)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Another service, with a bucket and an object."""
    it = Service(tmp_path_factory.mktemp("elsewhere") / "service", "--no-auth")
    it.client("s3").create_bucket(Bucket="far")
    it.client("s3").put_object(Bucket="far", Key="in/x", Body=b"from afar")
    yield it
    assert it.stop() == (0, "")


@pytest.fixture(scope="module")
def service(tmp_path_factory, elsewhere):
    folder = tmp_path_factory.mktemp("channels") / "service"
    shared = tmp_path_factory.mktemp("shared")
    (shared / "data").mkdir()
    (shared / "data" / "x").write_text("from a file system")
    folder.mkdir(mode=0o700)
    (folder / "images.conf").write_text("* root=/\n")
    (folder / "instances.conf").write_text("* cores=1/64 memory=1/64\n")
    (folder / "filesystems.conf").write_text(f"fs-0123456789abcdef0 {shared}\n")
    (folder / "buckets.conf").write_text(f"far {elsewhere.url} style=path\n")
    it = Service(folder)
    s3 = it.client("s3")
    s3.create_bucket(Bucket="data")
    for key in ("in/a.csv", "in/b/c.csv", "in/d.csv"):
        s3.put_object(Bucket="data", Key=key, Body=key.encode())
    s3.put_object(Bucket="data", Key="packed/z.csv.gz", Body=gzip.compress(b"unpacked"))
    s3.put_object(Bucket="data", Key="points/start", Body=b"from the bucket")
    s3.put_object(Bucket="data", Key="code/run.sh", Body=SCRIPT.encode())
    yield it
    status, said = it.stop()
    assert status == 0 and said.count("\n") == 1
    assert "job kinds: 2 entries of /opt/ml/model were left out: links to elsewhere" in said


def unpacked(service, key, bucket="data"):
    body = service.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        return {
            member.name: archive.extractfile(member).read().decode()
            for member in archive if member.isfile()
        }


def test_every_kind_of_channel_and_what_comes_back(service):
    client = service.client("sagemaker")
    system = {
        "FileSystemId": "fs-0123456789abcdef0", "FileSystemType": "EFS",
        "FileSystemAccessMode": "ro", "DirectoryPath": "/data",
    }
    create(
        client, "kinds", "sh /opt/ml/input/data/code/run.sh",
        [
            channel("code", "s3://data/code/run.sh"),
            channel("file", "s3://data/in"),
            channel("fast", "s3://data/in/a.csv", "FastFile"),
            channel("shard", "s3://data/in/", distribution="ShardedByS3Key"),
            channel("gzip", "s3://data/packed", CompressionType="Gzip"),
            channel("pipe", "s3://data/in", "Pipe"),
            {"ChannelName": "shared", "DataSource": {"FileSystemDataSource": system}},
        ],
        CheckpointConfig={"S3Uri": "s3://data/points", "LocalPath": "/opt/ml/points"},
    )
    job = ended(client, "kinds")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    unchanged = service.client("s3").get_object(Bucket="data", Key="in/a.csv")["Body"].read()
    assert unchanged == b"in/a.csv"
    uri = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == "s3://data/out/kinds/output/model.tar.gz"
    model = unpacked(service, "out/kinds/output/model.tar.gz")
    for host, shard in (("algo-1", ("a.csv", "d.csv")), ("algo-2", ("b/c.csv",))):
        seen = {
            name.removeprefix(host + "/"): text
            for name, text in model.items() if name.startswith(host + "/")
        }
        assert seen.pop("inputdataconfig.json").startswith('{"code":{')
        assert seen == {
            "file/a.csv": "in/a.csv", "file/b/c.csv": "in/b/c.csv", "file/d.csv": "in/d.csv",
            "fast/a.csv": "in/a.csv", "gzip/z.csv": "unpacked",
            "shared/x": "from a file system", "start": "from the bucket",
            "epoch-0": "in/a.csvin/b/c.csvin/d.csv", "epoch-1": "in/",
            "epoch-2": "in/a.csvin/b/c.csvin/d.csv",
            **{f"shard/{name}": f"in/{name}" for name in shard},
        }
    assert unpacked(service, "out/kinds/output/output.tar.gz") == {
        "curve-algo-1": "curve\n", "curve-algo-2": "curve\n",
    }
    listed = service.client("s3").list_objects_v2(Bucket="data", Prefix="points/")["Contents"]
    assert [entry["Key"] for entry in listed] == [
        "points/made-by-algo-1", "points/made-by-algo-2", "points/start",
    ]


def test_what_a_failed_job_made_is_kept(service):
    client = service.client("sagemaker")
    script = "echo half > /opt/ml/model/half; echo why > /opt/ml/output/failure; exit 7"
    create(client, "fails", script, count=1)
    job = ended(client, "fails")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == "AlgorithmError: why, exit code: 7"
    assert unpacked(service, "out/fails/output/model.tar.gz") == {"half": "half\n"}
    assert unpacked(service, "out/fails/output/output.tar.gz") == {"failure": "why\n"}


def test_a_job_that_replaces_its_pipe_fails(service):
    client = service.client("sagemaker")
    service.client("s3").put_object(Bucket="data", Key="large", Body=bytes(8 << 20))
    script = (
        "cd /opt/ml/input/data; exec 3<c_0; head -c 1 <&3; rm c_1; echo > c_1; "
        "cat <&3 >/dev/null; sleep 60"
    )
    create(client, "replaces", script, [channel("c", "s3://data/large", "Pipe")], count=1)
    job = ended(client, "replaces")
    assert job["FailureReason"].startswith(
        "ClientError: Data download failed: the job has changed its pipe algo-1/ml/input/data/c_1"
    )


def test_data_may_be_elsewhere(service, elsewhere):
    client = service.client("sagemaker")
    create(
        client, "far", "cp /opt/ml/input/data/c/x /opt/ml/model/x",
        [channel("c", "s3://far/in")], count=1, output="s3://far/out",
    )
    job = ended(client, "far")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert unpacked(elsewhere, "out/far/output/model.tar.gz", "far") == {"x": "from afar"}


def test_channels_without_objects_are_refused(service):
    client = service.client("sagemaker")
    with pytest.raises(client.exceptions.ClientError) as error:
        create(client, "empty", "true", [channel("c", "s3://data/none")], count=1)
    assert error.value.response["Error"]["Code"] == "ValidationException"
    assert 'No S3 objects found under S3 URL "s3://data/none"' in str(error.value)
