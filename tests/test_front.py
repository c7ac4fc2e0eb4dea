# SPDX-License-Identifier: Apache-2.0
"""TLS of `shoal serve`, and its front for hosts that the SDKs have built in."""

import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.parse

import pytest
from launching import SHOAL
from services import Service, needs_service, serve_fails, service

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (tools/setup test)")

__all__ = ["service"]
pytestmark = needs_service

# As scripts are that were written for the real hosts: nothing in it says where the service is.
UNCONFIGURED = """
import boto3, io, os
from boto3.s3.transfer import TransferConfig

assert "AWS_ENDPOINT_URL" not in os.environ
sts = boto3.client("sts", endpoint_url="https://sts.us-east-1.amazonaws.com")
assert sts.get_caller_identity()["Account"] == "000000000000"
assert boto3.client("iam").get_role(RoleName="r")["Role"]["RoleName"] == "r"
s3 = boto3.client("s3")
s3.create_bucket(Bucket="some-data")
body = os.urandom(9 << 20)
s3.upload_fileobj(io.BytesIO(body), "some-data", "a/large", Config=TransferConfig(8 << 20))
s3.put_object(Bucket="some-data", Key="a/b c+d?\\u00e9", Body=b"hello")
assert s3.get_object(Bucket="some-data", Key="a/large")["Body"].read() == body
assert s3.get_object(Bucket="some-data", Key="a/b c+d?\\u00e9")["Body"].read() == b"hello"
far = boto3.client("s3", region_name="eu-central-1")
assert [e["Key"] for e in far.list_objects_v2(Bucket="some-data")["Contents"]] == [
    "a/b c+d?\\u00e9", "a/large"
]
print("all of it")
"""


def run_python(code, environment):
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    return out.stdout, out.stderr


def test_a_script_without_any_configuration(service):
    environment = service.environment("--front", NO_PROXY="inner.example")
    assert environment.pop("AWS_ENDPOINT_URL") == service.url
    assert environment["HTTPS_PROXY"] == environment["https_proxy"] == service.url
    assert environment["NO_PROXY"] == environment["no_proxy"] == "inner.example,127.0.0.1"
    assert environment["REQUESTS_CA_BUNDLE"] == environment["AWS_CA_BUNDLE"]
    assert run_python(UNCONFIGURED, environment) == ("all of it\n", "")


def test_the_default_touches_no_other_https(service):
    environment = service.environment(NO_PROXY="a,127.0.0.1")
    assert not {"HTTPS_PROXY", "https_proxy", "AWS_CA_BUNDLE"} & set(environment)
    assert environment["NO_PROXY"] == "a,127.0.0.1"
    assert not (service.folder / "tls").exists()


def test_other_hosts_are_refused_with_a_word(service):
    address = urllib.parse.urlsplit(service.url)
    for host in ("example.org", "amazonaws.com.example.org"):
        connection = http.client.HTTPSConnection(address.hostname, address.port, timeout=30)
        connection.set_tunnel(host)
        with pytest.raises(OSError, match=f"403 Forbidden by shoal .*put {host} in NO_PROXY"):
            connection.request("GET", "/")
        connection.close()


def shown_certificate(service, name=None):
    """The certificate that a client sees who calls the service by this name."""
    address = urllib.parse.urlsplit(service.url)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((address.hostname, address.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        return secure.getpeercert(binary_form=True)


def test_tls_with_the_directory_s_authority(tmp_path):
    service = Service(tmp_path / "service", "--tls")
    assert service.url.startswith("https://127.0.0.1:")
    environment = service.environment()
    assert environment["AWS_CA_BUNDLE"] == str(service.folder / "tls" / "authority.pem")
    assert "HTTPS_PROXY" not in environment
    code = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"
    assert run_python(code, environment) == ("000000000000\n", "")
    own = http.client.HTTPConnection(service.url.removeprefix("https://"), timeout=30)
    own.request("GET", "/")  # without TLS: as jobs do, which are on this machine
    assert own.getresponse().status == 403
    own.close()
    context = ssl.create_default_context(cafile=environment["AWS_CA_BUNDLE"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("localhost", "127.0.0.1"):
        port = urllib.parse.urlsplit(service.url).port
        checked = http.client.HTTPSConnection(name, port, context=context, timeout=30)
        checked.request("GET", "/")
        assert checked.getresponse().status == 403
        checked.close()
    assert service.stop() == (0, "")


def make_pair(folder):
    """A certificate and a key, as somebody else's authority might give them."""
    pair = [folder / "given.pem", folder / "given.key"]
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-subj", "/CN=given", "-days", "2", "-out", pair[0], "-keyout", pair[1]],
        capture_output=True, text=True,
    )
    assert made.returncode == 0, made.stderr
    return pair


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
def test_tls_with_a_given_certificate(tmp_path):
    pair = make_pair(tmp_path)
    given = Service(tmp_path / "given", "--tls-cert", pair[0], "--tls-key", pair[1])
    wanted = ssl.PEM_cert_to_DER_cert(pair[0].read_text())
    assert shown_certificate(given) == shown_certificate(given, "other") == wanted
    assert shown_certificate(given, "b.s3.amazonaws.com") != wanted
    environment = given.environment("--front")
    assert "AWS_ENDPOINT_URL" not in environment
    assert run_python(UNCONFIGURED, environment) == ("all of it\n", "")
    assert given.stop() == (0, "")
    other = Service(tmp_path / "other", "--tls")
    assert other.stop() == (0, "")
    stranger = tmp_path / "other" / "tls" / "authority.key"
    arguments = ("--dir", given.folder, "--listen", "127.0.0.1:0", "--tls-cert", pair[0])
    assert serve_fails(*arguments, "--tls-key", stranger) == (
        1, f"shoal serve: {stranger} is not the key of the certificate in {pair[0]}\n",
    )
    assert "can't be used for TLS" in serve_fails(*arguments, "--tls-key", "/dev/null")[1]
    assert serve_fails(*arguments)[0] == 2


def test_an_end_with_connections_that_say_nothing(service):
    address = urllib.parse.urlsplit(service.url)
    said = [b"", b"G", b"CONNECT s3", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n"]
    held = []
    for number in range(300):
        held.append(socket.create_connection((address.hostname, address.port), timeout=30))
        held[-1].sendall(said[number % len(said)])
    assert service.client("sts").get_caller_identity()["Account"] == "000000000000"
    assert service.stop(signal.SIGTERM) == (0, "")
    for each in held:
        each.close()


def test_help_says_what_the_front_is_for():
    out = subprocess.run([SHOAL, "env", "--help"], capture_output=True, text=True, env=os.environ)
    assert "--front" in out.stdout and "amazonaws.com" in out.stdout
