# SPDX-License-Identifier: Apache-2.0
"""`shoal serve` and `shoal env`: start and end, who may call, signatures of real clients."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from datetime import timedelta

import pytest
from launching import DEADLINE_S, SHOAL, wait_until
from services import Service, needs_service, serve_fails, service

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (tools/setup test)")
import botocore.auth  # noqa: E402
from botocore.awsrequest import AWSRequest  # noqa: E402
from botocore.credentials import Credentials  # noqa: E402
from botocore.exceptions import ClientError, HTTPClientError  # noqa: E402

__all__ = ["service"]
pytestmark = needs_service

REFUSALS = (
    b"SignatureDoesNotMatch", b"InvalidSignatureException", b"AccessDenied", b"InvalidAccessKeyId",
    b"UnrecognizedClientException", b"AuthorizationHeaderMalformed", b"RequestTimeTooSkewed",
    b"AuthorizationQueryParametersError", b"XAmzContentSHA256Mismatch", b"Incomplete",
)


def send(service, method, target, headers, body=b""):
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=30)
    connection.request(method, target, body=body, headers=dict(headers))
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, text


def is_refused(answer):
    return answer[0] in (400, 403) and any(code in answer[1] for code in REFUSALS)


def signed(service, signer, name, method, path, params, headers, body):
    """A request as botocore signs it: method, target, headers, body."""
    query = urllib.parse.urlencode(params, quote_via=urllib.parse.quote)
    url = service.url + path + ("?" + query if query else "")
    is_presigned = signer is botocore.auth.S3SigV4QueryAuth  # whose bodies are not signed
    data = b"" if is_presigned else body
    request = AWSRequest(method=method, url=url, data=data, headers=headers)
    request.context["client_config"] = None
    keys = Credentials(service.key, service.secret)
    signer(keys, name, "eu-west-3").add_auth(request)
    split = urllib.parse.urlsplit(request.url)
    target = split.path + ("?" + split.query if split.query else "")
    return method, target, dict(request.headers.items()), body


LETTERS = "abcXYZ019-._~ /+%&=?#!'()*,;:@$é漢\U0001f41f\"<>[]{}|\\^`"


def random_text(source, most):
    return "".join(source.choice(LETTERS) for _ in range(source.randint(0, most)))


def random_request(source, service):
    """A request to S3 with what the path, query, headers and body may hold."""
    path = "/" + urllib.parse.quote(random_text(source, 30), safe="/~")
    params = [
        (random_text(source, 8) or "k", random_text(source, 12))
        for _ in range(source.randint(0, 4))
    ]
    headers = {f"x-amz-meta-{i}": f" a  {source.random()} b " for i in range(source.randint(0, 3))}
    body = source.randbytes(source.choice((0, 1, 1000)))
    method = source.choice(("GET", "PUT", "POST", "DELETE"))
    return method, path, params, headers, b"" if method in ("GET", "DELETE") else body


def test_signatures_of_botocore_are_accepted_and_changes_are_not(service):
    source = random.Random(3)
    for _ in range(150):
        signer = source.choice((botocore.auth.S3SigV4Auth, botocore.auth.S3SigV4QueryAuth))
        request = random_request(source, service)
        method, target, headers, body = signed(service, signer, "s3", *request)
        assert not is_refused(send(service, method, target, headers, body)), (request, target)
        changed = source.choice(("path", "method", "query"))
        if changed == "path":
            target = "/x" + target
        elif changed == "method":
            method = "PUT" if method != "PUT" else "POST"
        else:
            target += ("&" if "?" in target else "?") + "more=1"
        assert is_refused(send(service, method, target, headers, body)), (changed, request)


def test_bodies_of_json_services_are_part_of_the_signature(service):
    headers = {
        "X-Amz-Target": "SageMaker.NoSuchThing", "Content-Type": "application/x-amz-json-1.1"
    }
    for name in ("sagemaker", "logs"):
        method, target, wire, body = signed(
            service, botocore.auth.SigV4Auth, name, "POST", "/", [], headers, b'{"A": 1}'
        )
        status, text = send(service, method, target, wire, body)
        if name == "sagemaker":
            assert status == 400 and b"UnknownOperationException" in text
            assert b"'NoSuchThing'" in text
        else:
            assert b"Credential should be scoped to correct service" in text
        assert b"InvalidSignatureException" in send(service, method, target, wire, b'{"A": 2}')[1]
    wire["Authorization"] = wire["Authorization"].replace(service.key, "INVENTED")
    assert b"UnrecognizedClientException" in send(service, method, target, wire, body)[1]


def test_clocks_and_expired_urls(service, monkeypatch):
    now = botocore.auth.get_current_datetime
    request = ("GET", "/b/k", [], {}, b"")

    def answer(signer, seconds):
        monkeypatch.setattr(
            botocore.auth, "get_current_datetime",
            lambda *args, **options: now(*args, **options) + timedelta(seconds=seconds),
        )
        return send(service, *signed(service, signer, "s3", *request))

    header, query = botocore.auth.S3SigV4Auth, botocore.auth.S3SigV4QueryAuth
    assert not is_refused(answer(header, -800))
    assert b"RequestTimeTooSkewed" in answer(header, -1000)[1]
    assert b"RequestTimeTooSkewed" in answer(header, 1000)[1]
    assert not is_refused(answer(query, -3000))
    assert b"Request has expired" in answer(query, -3700)[1]


def test_who_one_is_and_what_one_may(service):
    sts, iam = service.client("sts"), service.client("iam")
    who = sts.get_caller_identity()
    assert who["Account"] == "000000000000"
    assert who["Arn"] == "arn:aws:sts::000000000000:assumed-role/shoal/local"
    assert who["UserId"] == f"{service.key}:local"
    role = iam.get_role(RoleName="MyRole")["Role"]
    assert role["Arn"] == "arn:aws:iam::000000000000:role/MyRole"
    statement = role["AssumeRolePolicyDocument"]["Statement"][0]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    results = iam.simulate_principal_policy(
        PolicySourceArn=role["Arn"], ActionNames=["s3:GetObject", "s3:PutObject"]
    )["EvaluationResults"]
    assert [(each["EvalActionName"], each["EvalDecision"]) for each in results] == [
        ("s3:GetObject", "allowed"), ("s3:PutObject", "allowed")
    ]
    with pytest.raises(ClientError, match="ValidationError.*RoleName must have"):
        iam.get_role(RoleName="a/b")


def expect_old_urls(service):
    """What boto3 makes by default: signature version 2."""
    s3 = service.client("s3", signature_version="s3")
    link = s3.generate_presigned_url(
        "get_object", ExpiresIn=60,
        Params={"Bucket": "data", "Key": "a/b c+d?é", "ResponseContentType": "text/x y"},
    )
    assert "AWSAccessKeyId=" in link
    with urllib.request.urlopen(link, timeout=30) as reply:
        assert reply.read() == b"hello"
        assert reply.headers["Content-Type"] == "text/x y"
    for change in (("b%20c", "b%20x"), ("x%20y", "z"), ("Expires=1", "Expires=2")):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(link.replace(*change), timeout=30)
    over = s3.generate_presigned_url("list_buckets", ExpiresIn=-10)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(over, timeout=30)


def test_s3_behind_the_same_address(service):
    s3 = service.client("s3", signature_version="s3v4")
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="a/b c+d?é", Body=b"hello", Metadata={"by": "me"})
    got = s3.get_object(Bucket="data", Key="a/b c+d?é", Range="bytes=1-3")
    assert got["Body"].read() == b"ell" and got["Metadata"] == {"by": "me"}
    link = s3.generate_presigned_url(
        "get_object", Params={"Bucket": "data", "Key": "a/b c+d?é"}, ExpiresIn=60
    )
    with urllib.request.urlopen(link, timeout=30) as reply:
        assert reply.read() == b"hello"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(link.replace("b%20c", "b%20x"), timeout=30)
    expect_old_urls(service)
    with pytest.raises(ClientError, match="NoSuchKey"):
        s3.get_object(Bucket="data", Key="none")


def test_objects_outlive_a_killed_service(service):
    s3 = service.client("s3")
    s3.create_bucket(Bucket="data")
    for i in range(5):
        s3.put_object(Bucket="data", Key=f"k{i}", Body=b"x" * i * 1000)
    service.process.kill()
    service.process.wait()
    again = Service(service.folder)
    contents = again.client("s3").list_objects_v2(Bucket="data")["Contents"]
    assert [each["Size"] for each in contents] == [0, 1000, 2000, 3000, 4000]
    assert again.stop() == (0, "")


def test_unknown_operations_are_named(service):
    with pytest.raises(ClientError, match="InvalidAction.*'ListUsers'"):
        service.client("iam").list_users()
    with pytest.raises(ClientError, match="UnknownOperationException.*'ListApps'"):
        service.client("sagemaker").list_apps()
    with pytest.raises(ClientError, match="UnknownOperationException.*'ListDashboards'"):
        service.client("cloudwatch").list_dashboards()


def test_services_that_are_not_here_are_named(service):
    """In the form that each of their clients reads: JSON, forms, paths."""
    has = "it has s3, sagemaker, logs, monitoring, sts and iam"
    for name, call in (
        ("ecr", lambda client: client.describe_repositories()),
        ("ec2", lambda client: client.describe_instances()),
        ("sns", lambda client: client.list_topics()),
        ("lambda", lambda client: client.list_functions()),
    ):
        with pytest.raises(ClientError, match=f"does not have the service '{name}': {has}"):
            call(service.client(name))
    service.secret = "wrong"
    with pytest.raises(ClientError, match="InvalidSignature"):
        service.client("ecr").describe_repositories()


def test_env_is_what_a_client_needs(tmp_path):
    service = Service(tmp_path / "it's a \"folder\"")
    environment = service.environment()
    assert environment["AWS_ENDPOINT_URL"] == service.url
    assert environment["AWS_SECRET_ACCESS_KEY"] == service.secret
    config = environment["SAGEMAKER_USER_CONFIG_OVERRIDE"]
    assert config == str(service.folder / "config.yaml") and os.path.exists(config)
    code = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (out.stdout, out.stderr) == ("000000000000\n", "")
    assert service.stop(signal.SIGINT) == (0, "")


@pytest.mark.parametrize("before", ["", "example.org", "a,127.0.0.1,b", "127.0.0.10"])
def test_env_says_the_same_as_json(service, before):
    has = {"NO_PROXY": before, "AWS_PROFILE": "p", "AWS_SESSION_TOKEN": "t"}
    for words in ([], ["--front"]):
        out = subprocess.run(
            [SHOAL, "env", "--json", "--dir", service.folder, *words], env=os.environ | has,
            capture_output=True, text=True, check=True,
        )
        said = json.loads(out.stdout)
        shell = service.environment(*words, **has)
        assert said == {name: shell.get(name) for name in said}
        assert said["AWS_PROFILE"] is None and said["AWS_ENDPOINT_URL"] == service.url
        assert ("HTTPS_PROXY" in said) == bool(words)


def test_a_service_says_as_json_where_it_is(tmp_path):
    words = [SHOAL, "serve", "--json", "--dir", tmp_path, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
        process.terminate()
    assert said["directory"] == str(tmp_path) and said["process"] == process.pid
    assert said["address"].startswith("http://127.0.0.1:") and process.returncode == 0


def test_env_waits_for_a_service_that_is_being_started(tmp_path):
    """Both lines of the first example are often one paste."""
    words = [SHOAL, "env", "--dir", tmp_path / "service"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as env:
        service = Service(tmp_path / "service")
        out, err = env.communicate(timeout=DEADLINE_S)
    assert (env.returncode, err) == (0, "")
    assert f"export AWS_ENDPOINT_URL='{service.url}'\n" in out
    assert service.stop() == (0, "")


def test_a_service_without_signatures(tmp_path):
    service = Service(tmp_path, "--no-auth")
    service.secret = "wrong"
    assert service.client("sts").get_caller_identity()["Arn"].endswith("/anonymous")
    assert service.stop() == (0, "")
    assert serve_fails("--dir", tmp_path, "--no-auth", "--listen", "0.0.0.0:0") == (
        2,
        "shoal serve: --no-auth would let everyone in who reaches 0.0.0.0: it goes with this "
        "machine's own addresses only, such as 127.0.0.1\n",
    )


def asked_until_answered(call, **arguments):
    """What a call gives: the request that has no memory fails as a whole, and the next one goes."""
    for _ in range(3):
        try:
            return call(**arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in ("BucketAlreadyOwnedByYou", "ResourceInUse"):
                return None  # the reply had no memory, not the bucket or the job
            assert error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500
        except HTTPClientError:
            pass  # there was none for a reply either
    raise AssertionError("more than one allocation failed")


@pytest.mark.parametrize("nth", [1, 40, 90, 120, 137, 150, 165, 180])
def test_an_allocation_that_fails_is_one_error(tmp_path, monkeypatch, nth):
    """The nth of the process: the start says so, or a request does, and what was answered stays."""
    monkeypatch.setenv("SHOAL_FAIL_ALLOC", str(nth))
    if nth <= 40:
        status, err = serve_fails("--dir", tmp_path, "--listen", "127.0.0.1:0")
        assert status == 1 and err.startswith("shoal serve: no memory for ")
        return
    service = Service(tmp_path)
    s3 = service.client("s3")
    asked_until_answered(s3.create_bucket, Bucket="data")
    one = {"Bucket": "data", "Key": "k"}
    upload = {"UploadId": asked_until_answered(s3.create_multipart_upload, **one)["UploadId"]}
    part = asked_until_answered(s3.upload_part, PartNumber=1, Body=b"hello", **one, **upload)
    parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
    asked_until_answered(s3.complete_multipart_upload, MultipartUpload={"Parts": parts},
                         **one, **upload)
    asked_until_answered(service.client("sagemaker").list_training_jobs)
    assert service.stop()[0] == 0
    monkeypatch.delenv("SHOAL_FAIL_ALLOC")
    again = Service(tmp_path)
    assert again.client("s3").get_object(**one)["Body"].read() == b"hello"
    assert again.stop() == (0, "")


@pytest.mark.parametrize("nth", [70, 79])
def test_a_job_goes_on_where_an_allocation_fails(tmp_path, monkeypatch, nth):
    """Among those that look at the request, and of the thread that begins jobs. Which one is the
    nth is a matter of several threads: where the job itself had no memory, that is its reason."""
    (tmp_path / "images.conf").write_text("* root=/\n")
    monkeypatch.setenv("SHOAL_FAIL_ALLOC", str(nth))
    service = Service(tmp_path)
    asked_until_answered(service.client("s3").create_bucket, Bucket="data")
    jobs = service.client("sagemaker")
    asked_until_answered(
        jobs.create_training_job,
        TrainingJobName="job",
        RoleArn="arn:aws:iam::000000000000:role/shoal",
        AlgorithmSpecification={
            "TrainingImage": "mine", "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/true"],
        },
        OutputDataConfig={"S3OutputPath": "s3://data/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )

    def has_ended():
        about = asked_until_answered(jobs.describe_training_job, TrainingJobName="job")
        assert about["TrainingJobStatus"] != "Failed" or "no memory" in about["FailureReason"]
        return about["TrainingJobStatus"] in ("Completed", "Failed")

    wait_until(has_ended, "end of the job")
    assert service.stop()[0] == 0


def test_a_directory_has_one_service(service):
    status, err = serve_fails("--dir", service.folder, "--listen", "127.0.0.1:0")
    assert status == 1
    assert f"belongs to the service at {service.url[7:]} (process {service.process.pid})" in err
    service.process.kill()
    service.process.wait()
    again = Service(service.folder)
    assert again.key == service.key
    assert again.stop() == (0, "")


def test_what_keeps_it_from_starting(tmp_path, service):
    status, err = serve_fails("--dir", tmp_path / "other", "--listen", service.url[7:])
    assert status == 1 and "cannot listen on 127.0.0.1:" in err
    keys = tmp_path / "closed" / "keys"
    keys.parent.mkdir()
    keys.write_text("INVENTED\n")
    keys.chmod(0o644)
    assert "others than its owner may use it" in serve_fails("--dir", keys.parent)[1]
    keys.chmod(0o600)
    assert f"{keys}:1: the secret is missing" in serve_fails("--dir", keys.parent)[1]
    assert serve_fails("--listen", "nowhere")[0] == 2
    assert "cannot make the directory" in serve_fails("--dir", "/proc/none")[1]


def test_help_has_an_example():
    for name in ("serve", "env"):
        out = subprocess.run([SHOAL, "help", name], capture_output=True, text=True)
        assert out.returncode == 0 and "example:" in out.stdout
