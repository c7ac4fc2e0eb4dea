# SPDX-License-Identifier: Apache-2.0
"""The clients that people have, unmodified, against `shoal serve` with its signatures: the AWS CLI,
s3cmd, s3fs for Python's fsspec, and the s3fs that mounts a bucket."""

import filecmp
import json
import os
import random
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from launching import DEADLINE_S
from services import Service, needs_service

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / ".venv-s3" / "bin"
MIB = 1 << 20

pytestmark = needs_service
needs_clients = pytest.mark.skipif(
    not (PROGRAMS / "aws").exists(),
    reason="the AWS CLI, s3cmd and s3fs are not installed (tools/setup test)",
)
needs_mounts = pytest.mark.skipif(
    shutil.which("s3fs") is None or not os.access("/dev/fuse", os.W_OK) or os.geteuid() != 0,
    reason="no s3fs that mounts buckets (tools/setup test), no /dev/fuse, or not root",
)

# The commands take most of a second to begin: each is a fork of one process that has run some.
PROGRAM = """
import gc, json, os, runpy, sys
from awscli.clidriver import create_clidriver
import S3.CloudFront, S3.FileLists, S3.MultiPart, S3.S3
aws = create_clidriver()
sys.stdout = open(os.devnull, "w")
aws.main(["s3api", "list-buckets"])
aws.main(["s3", "ls"])
sys.stdout = sys.__stdout__
gc.freeze()

def run(words):
    if words[0] == "aws":
        return aws.main(words[1:])
    sys.argv = [os.path.join(os.path.dirname(sys.executable), words[0])] + words[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")

for line in os.fdopen(int(sys.argv[1])):
    words, files = json.loads(line)
    child = os.fork()
    if child == 0:
        for fd, path in enumerate(files):
            os.dup2(os.open(path, os.O_RDWR), fd)
        try:
            status = run(words)
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Programs:
    """The AWS CLI and s3cmd."""

    def __init__(self, folder, environment):
        commands, self.commands = os.pipe()
        self.files = [folder / name for name in ("in", "out", "err")]
        self.process = subprocess.Popen(
            [PROGRAMS / "python", "-c", PROGRAM, str(commands)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, pass_fds=[commands], env=environment,
        )
        os.close(commands)

    def run(self, words, body=b"", fails=False):
        """What a command says on its standard output; on its standard error where it fails."""
        for file, contents in zip(self.files, (body, b"", b""), strict=True):
            file.write_bytes(contents)
        line = json.dumps([[str(word) for word in words], [str(file) for file in self.files]])
        os.write(self.commands, f"{line}\n".encode())
        status = int(self.process.stdout.readline())
        out, err = (file.read_bytes() for file in self.files[1:])
        assert (status != 0) == fails, (words, status, out, err)
        return err if fails else out

    def stop(self):
        os.close(self.commands)
        self.process.communicate(timeout=DEADLINE_S)


class Clients:
    """A service, and programs that call it."""

    def __init__(self, folder):
        self.service = Service(folder / "service")
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environment = plain | {
            "HOME": str(folder), "AWS_ENDPOINT_URL": self.service.url,
            "AWS_ACCESS_KEY_ID": self.service.key, "AWS_SECRET_ACCESS_KEY": self.service.secret,
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }
        host = self.service.url.removeprefix("http://")
        (folder / ".s3cfg").write_text(
            f"access_key = {self.service.key}\nsecret_key = {self.service.secret}\n"
            f"host_base = {host}\nhost_bucket = {host}\nuse_https = False\n"
            "multipart_chunk_size_mb = 5\n"
        )
        self.folder, self.programs = folder, None

    def run(self, *words, **options):
        """What a command says, in bytes."""
        if self.programs is None:
            self.programs = Programs(self.folder, self.environment)
        return self.programs.run(words, **options)

    def aws(self, *words, **options):
        return self.run("aws", *words, **options).decode()

    def api(self, *words, fails=False):
        """What a call of `aws s3api` answers."""
        out = self.aws("s3api", *words, "--output", "json", fails=fails)
        return out if fails else json.loads(out or "{}")

    def s3cmd(self, *words):
        return self.run("s3cmd", "--no-progress", *words).decode()

    def stop(self):
        if self.programs is not None:
            self.programs.stop()
        assert self.service.stop() == (0, "")


@pytest.fixture(scope="module")
def clients(tmp_path_factory):
    it = Clients(tmp_path_factory.mktemp("clients"))
    yield it
    it.stop()


@pytest.fixture
def folder(tmp_path):
    """Files to send: small ones below each other, and one of three parts."""
    root = tmp_path / "from"
    for name in ("a.txt", "b.bin", "deep/er/é +&=.txt", "deep/c.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "large").write_bytes(random.Random(1).randbytes(11 * MIB + 3))
    return root


def same_trees(one, other):
    compared = filecmp.dircmp(one, other)
    unlike = compared.left_only + compared.right_only + compared.diff_files + compared.funny_files
    return not unlike and all(same_trees(one / name, other / name) for name in compared.common_dirs)


def url_of(text):
    """The body of what a presigned URL names."""
    with urllib.request.urlopen(text.strip(), timeout=DEADLINE_S) as reply:
        return reply.read()


# ---- the AWS CLI -----------------------------------------------------------------------------


@needs_clients
def test_aws_cli_with_files(clients, folder, tmp_path):
    aws = clients.aws
    aws("s3", "mb", "s3://cli", "--region", "eu-central-1")
    assert "upload: " in aws("s3", "cp", folder / "a.txt", "s3://cli/one/")
    aws("s3", "cp", folder, "s3://cli/all", "--recursive", "--exclude", "*", "--include", "*.txt")
    listed = aws("s3", "ls", "s3://cli/all/")
    assert re.findall(r"(?m) +(\d+|PRE) (.*)$", listed) == [("PRE", "deep/"), ("5", "a.txt")]
    assert aws("s3", "sync", folder, "s3://cli/all").count("upload: ") == 2
    assert aws("s3", "sync", folder, "s3://cli/all") == ""
    assert aws("s3", "sync", "s3://cli/all", "s3://cli/copy").count("copy: ") == 5
    aws("s3", "sync", "s3://cli/copy", tmp_path / "to")
    assert same_trees(folder, tmp_path / "to")
    (folder / "b.bin").unlink()
    assert "delete: s3://cli/all/b.bin" in aws("s3", "sync", folder, "s3://cli/all", "--delete")
    aws("s3", "mv", "s3://cli/one/a.txt", "s3://cli/two/b.txt", "--metadata", "k=v",
        "--content-type", "x/y")
    assert aws("s3", "ls", "s3://cli/one/", fails=True) == ""
    summary = aws("s3", "ls", "s3://cli", "--recursive", "--summarize")
    assert "Total Objects: 10\n" in summary and "two/b.txt" in summary
    url = aws("s3", "presign", "s3://cli/all/deep/er/é +&=.txt", "--expires-in", "60")
    assert url_of(url) == "deep/er/é +&=.txt".encode()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        url_of(url.replace("er/", "her/"))
    assert aws("s3", "rm", "s3://cli/copy", "--recursive").count("delete: ") == 5
    assert "BucketNotEmpty" in aws("s3", "rb", "s3://cli", fails=True)
    aws("s3", "rb", "s3://cli", "--force")
    assert "NoSuchBucket" in aws("s3", "ls", "s3://cli", fails=True)


@needs_clients
def test_aws_cli_with_streams_and_many_parts(clients, tmp_path):
    clients.aws("s3", "mb", "s3://streams")
    data = random.Random(2).randbytes(9 * MIB)  # two parts, of no known size
    clients.run("aws", "s3", "cp", "-", "s3://streams/in", body=data)
    assert clients.run("aws", "s3", "cp", "s3://streams/in", "-") == data
    large, back = tmp_path / "large", tmp_path / "back"
    with open(large, "wb") as file:
        file.truncate(104 * MIB)
        file.seek(100 * MIB)
        file.write(b"behind a hole")
    clients.aws("s3", "cp", large, "s3://streams/large", "--only-show-errors")
    about = clients.api("head-object", "--bucket", "streams", "--key", "large")
    assert about["ContentLength"] == 104 * MIB and about["ETag"].endswith('-13"')
    clients.aws("s3", "cp", "s3://streams/large", back, "--only-show-errors")
    assert filecmp.cmp(large, back, shallow=False)


@needs_clients
def test_aws_cli_by_calls_on_objects(clients, folder, tmp_path):
    api, here = clients.api, ("--bucket", "calls")
    one = (*here, "--key", "k")
    api("create-bucket", *here)
    api("wait", "bucket-exists", *here)
    assert api("get-bucket-location", *here)["LocationConstraint"] is None
    assert api("head-bucket", *here)["BucketRegion"] == "us-east-1"
    assert "calls" in [each["Name"] for each in api("list-buckets")["Buckets"]]
    put = api("put-object", *one, "--body", folder / "a.txt", "--metadata", "a=1,b=2", "--tagging",
              "x=y", "--checksum-algorithm", "SHA256", "--content-type", "text/plain", "--acl",
              "private", "--storage-class", "STANDARD", "--expected-bucket-owner", "123456789012")
    assert put["ChecksumSHA256"]
    about = api("head-object", *one, "--checksum-mode", "ENABLED")
    assert about["Metadata"] == {"a": "1", "b": "2"} and about["ChecksumSHA256"] == (
        put["ChecksumSHA256"])
    assert api("get-object-tagging", *one)["TagSet"] == [{"Key": "x", "Value": "y"}]
    got = api("get-object", *one, "--range", "bytes=2-", tmp_path / "got")
    assert got["ContentRange"] == "bytes 2-4/5" and (tmp_path / "got").read_text() == "txt"
    assert "304" in api("get-object", *one, "--if-none-match", put["ETag"], tmp_path / "x",
                        fails=True)
    assert "PreconditionFailed" in api("put-object", *one, "--if-none-match", "*", fails=True)
    assert "PreconditionFailed" in api("put-object", *one, "--if-match", "x", fails=True)
    api("copy-object", *here, "--key", "copy", "--copy-source", "calls/k", "--metadata", "c=3",
        "--metadata-directive", "REPLACE")
    assert api("head-object", *here, "--key", "copy")["Metadata"] == {"c": "3"}
    parts = api("get-object-attributes", *one, "--object-attributes", "ETag", "ObjectSize",
                "Checksum")
    assert parts["ObjectSize"] == 5 and parts["Checksum"]["ChecksumSHA256"] == put["ChecksumSHA256"]
    rows = api("list-objects-v2", *here, "--max-items", "1", "--page-size", "1")
    assert len(rows["Contents"]) == 1 and rows["NextToken"]
    assert api("list-objects-v2", *here, "--query", "Contents[].Key") == ["copy", "k"]
    assert [each["VersionId"] for each in api("list-object-versions", *here)["Versions"]] == [
        "null", "null"]
    assert api("get-object-acl", *one)["Grants"][0]["Permission"] == "FULL_CONTROL"
    assert "NoSuchKey" in api("get-object", *here, "--key", "none", tmp_path / "x", fails=True)
    assert "404" in api("head-object", *here, "--key", "none", fails=True)
    assert "PutBucketPolicy is not implemented here" in api(
        "put-bucket-policy", *here, "--policy", "{}", fails=True)
    gone = api("delete-objects", *here, "--delete", "Objects=[{Key=k},{Key=copy}]")
    assert len(gone["Deleted"]) == 2
    api("wait", "object-not-exists", *one)
    api("delete-bucket", *here)


@needs_clients
def test_aws_cli_by_calls_on_uploads(clients, folder):
    api, here = clients.api, ("--bucket", "uploads", "--key", "k")
    api("create-bucket", *here[:2])
    api("put-object", *here[:2], "--key", "source", "--body", folder / "large")
    upload = ("--upload-id", api("create-multipart-upload", *here)["UploadId"])
    first = api("upload-part-copy", *here, *upload, "--part-number", "1", "--copy-source",
                "uploads/source", "--copy-source-range", f"bytes=0-{5 * MIB - 1}")
    last = api("upload-part", *here, *upload, "--part-number", "2", "--body", folder / "a.txt")
    assert [part["Size"] for part in api("list-parts", *here, *upload)["Parts"]] == [5 * MIB, 5]
    assert api("list-multipart-uploads", *here[:2])["Uploads"][0]["Key"] == "k"
    parts = [{"PartNumber": 1, "ETag": first["CopyPartResult"]["ETag"]},
             {"PartNumber": 2, "ETag": last["ETag"]}]
    done = api("complete-multipart-upload", *here, *upload, "--multipart-upload",
               json.dumps({"Parts": parts}))
    assert done["ETag"].endswith('-2"')
    about = api("get-object-attributes", *here, "--object-attributes", "ObjectParts", "ObjectSize")
    assert about == about | {"ObjectSize": 5 * MIB + 5} and (
        about["ObjectParts"]["TotalPartsCount"] == 2)
    other = api("create-multipart-upload", *here)["UploadId"]
    api("abort-multipart-upload", *here, "--upload-id", other)
    assert "NoSuchUpload" in api("list-parts", *here, "--upload-id", other, fails=True)


# ---- s3cmd -----------------------------------------------------------------------------------


@needs_clients
def test_s3cmd(clients, folder, tmp_path):
    s3cmd = clients.s3cmd
    s3cmd("mb", "s3://cmd")
    s3cmd("put", folder / "large", "s3://cmd/large", "--add-header", "x-amz-meta-k:v")
    with open(folder / "large", "rb") as file:
        (tmp_path / "large").write_bytes(file.read(MIB))
    s3cmd("get", "--continue", "s3://cmd/large", tmp_path / "large")
    assert filecmp.cmp(folder / "large", tmp_path / "large", shallow=False)
    clients.run("s3cmd", "put", "-", "s3://cmd/in", body=b"from a pipe")
    assert clients.run("s3cmd", "get", "s3://cmd/in", "-") == b"from a pipe"
    s3cmd("sync", folder, "s3://cmd/")
    assert "upload" not in s3cmd("sync", folder, "s3://cmd/")
    s3cmd("sync", "s3://cmd/from/", f"{tmp_path}/to/")
    assert same_trees(folder, tmp_path / "to")
    (folder / "b.bin").unlink()
    s3cmd("sync", "--delete-removed", folder, "s3://cmd/")
    listed = s3cmd("ls", "s3://cmd/from/")
    assert re.findall(r"s3://\S+", listed) == [
        "s3://cmd/from/deep/", "s3://cmd/from/a.txt", "s3://cmd/from/large"]
    s3cmd("modify", "--add-header", "x-amz-meta-more:1", "s3://cmd/large")
    s3cmd("cp", "s3://cmd/large", "s3://cmd/copy")
    s3cmd("mv", "s3://cmd/in", "s3://cmd/moved")
    about = s3cmd("info", "s3://cmd/copy")
    assert "x-amz-meta-more: 1" in about and "x-amz-meta-k: v" in about and "11534339" in about
    assert url_of(s3cmd("signurl", "s3://cmd/moved", "+60")) == b"from a pipe"
    assert s3cmd("du", "s3://cmd").split()[1:3] == ["7", "objects"]
    s3cmd("info", "s3://cmd")
    s3cmd("rm", "--recursive", "--force", "s3://cmd")
    s3cmd("rb", "s3://cmd")


# ---- s3fs of fsspec --------------------------------------------------------------------------

FSSPEC = """
import sys
import s3fs
fs = s3fs.S3FileSystem(use_listings_cache=False)
fs.mkdir("fsspec")
fs.pipe({f"fsspec/d/{n}": b"%d" % n for n in range(5)})
assert fs.cat(fs.find("fsspec/d"))["fsspec/d/3"] == b"3"
assert fs.ls("fsspec", detail=False) == ["fsspec/d"] and fs.isdir("fsspec/d")
assert fs.find("fsspec") == fs.glob("fsspec/*/*") and fs.du("fsspec") == 5
data = bytes(range(256)) * (11 << 12)
with fs.open("fsspec/large", "wb", block_size=5 << 20, Metadata={"k": "v"}) as file:
    file.write(data)
with fs.open("fsspec/large", "ab") as file:
    file.write(b"more")
assert fs.info("fsspec/large")["size"] == len(data) + 4
assert fs.metadata("fsspec/large") == {"k": "v"}
with fs.open("fsspec/large", block_size=1 << 20, cache_type="readahead") as file:
    file.seek(6 << 20)
    assert file.read(1000) == data[6 << 20:][:1000]
assert fs.cat_ranges(["fsspec/large"] * 2, [1, -4], [3, None]) == [b"\\1\\2", b"more"]
fs.put(sys.argv[1], "fsspec/tree", recursive=True)
fs.get("fsspec/tree", sys.argv[2], recursive=True)
fs.setxattr("fsspec/large", copy_kwargs={"ContentType": "x/y"}, new="1")
assert fs.getxattr("fsspec/large", "new") == "1"
fs.put_tags("fsspec/large", {"a": "b"})
assert fs.get_tags("fsspec/large") == {"a": "b"}
fs.touch("fsspec/empty")
fs.copy("fsspec/large", "fsspec/copy")
fs.copy("fsspec/d", "fsspec/e", recursive=True)
fs.mv("fsspec/d/4", "fsspec/e/5")
assert len(fs.ls("fsspec/d")) == 4 and len(fs.ls("fsspec/e")) == 6
try:
    fs.pipe_file("fsspec/empty", b"x", mode="create")
    raise SystemExit("an object was written over")
except OSError:
    pass
try:
    fs.cat("fsspec/none")
    raise SystemExit("an object that is not there was read")
except FileNotFoundError:
    pass
fs.rm("fsspec/tree", recursive=True)
assert not fs.exists("fsspec/tree")
print(fs.sign("fsspec/e/3"))
"""


@needs_clients
def test_s3fs_of_fsspec(clients, folder, tmp_path):
    out = subprocess.run(
        [PROGRAMS / "python", "-W", "error", "-c", FSSPEC, folder, tmp_path / "to"],
        capture_output=True, text=True, timeout=DEADLINE_S, env=clients.environment,
    )
    assert out.returncode == 0, out.stderr
    assert url_of(out.stdout) == b"3"
    assert same_trees(folder, tmp_path / "to")


# ---- a bucket as a file system -----------------------------------------------------------------

# Runs in a mount namespace of its own, which takes the mount with it, whatever happens.
MOUNTED = """
mount=$1 from=$2
s3fs mounted "$mount" -f -o url="$AWS_ENDPOINT_URL" -o use_path_request_style -o multipart_size=5 &
until mountpoint -q "$mount"; do kill -0 $!; sleep 0.02; done
cp -r "$from"/. "$mount"/
diff -r "$from" "$mount"
echo more >>"$mount"/a.txt
printf XY | dd of="$mount"/large bs=1 seek=6000000 conv=notrunc status=none
mv "$mount"/deep "$mount"/renamed
rm "$mount"/b.bin
mkdir "$mount"/empty
chmod 640 "$mount"/a.txt
umount "$mount"
wait $!
"""


@needs_mounts
def test_a_mounted_bucket(clients, folder, tmp_path):
    s3 = clients.service.client("s3")
    s3.create_bucket(Bucket="mounted")
    (tmp_path / "mount").mkdir()
    environment = clients.environment | {
        "AWSACCESSKEYID": clients.service.key, "AWSSECRETACCESSKEY": clients.service.secret}
    out = subprocess.run(
        ["unshare", "--mount", "--fork", "--kill-child", "bash", "-euc", MOUNTED, "-",
         tmp_path / "mount", folder],
        capture_output=True, timeout=DEADLINE_S, env=environment,
    )
    assert out.returncode == 0, out

    def body(key):
        return s3.get_object(Bucket="mounted", Key=key)["Body"].read()

    expected = (folder / "large").read_bytes()
    assert body("large") == expected[:6000000] + b"XY" + expected[6000002:]
    assert body("a.txt") == b"a.txtmore\n"
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="mounted")["Contents"]]
    assert keys == ["a.txt", "empty/", "large", "renamed/", "renamed/c.txt", "renamed/er/",
                    "renamed/er/é +&=.txt"]
