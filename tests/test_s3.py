# SPDX-License-Identifier: Apache-2.0
"""S3 as its own client sees it: boto3, unmodified, against a server with keys.

What is tested is what a client can tell: bodies, headers, errors by their codes, checksums in both
directions (boto3 counts its own), pages, multipart uploads and copies by the transfer manager.
"""

import io
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (tools/setup test)")
from boto3.s3.transfer import TransferConfig  # noqa: E402
from botocore.config import Config  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SHOAL_BUILD", ROOT / "build" / "release")).resolve()
SERVER = BUILD / "tests" / "s3_protocol_test"
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason=f"{SERVER} is not built")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Address, key and secret of a server."""
    folder = tmp_path_factory.mktemp("s3")
    process = subprocess.Popen(
        [SERVER, "serve", folder / "store", folder / "keys"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    address = process.stdout.readline().strip()
    lines = (folder / "keys").read_text().splitlines()
    key, secret = next(line.split()[:2] for line in lines if line and line[0] != "#")
    yield f"http://{address}", key, secret
    process.stdin.close()
    assert process.wait(timeout=30) == 0


def client_of(server, **config):
    url, key, secret = server
    return boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"max_attempts": 1}, signature_version="s3v4", **config),
    )


@pytest.fixture(scope="module")
def s3(server):
    return client_of(server)


@pytest.fixture
def bucket(s3, request):
    name = "bkt-" + str(abs(hash(request.node.name)))[:12]
    s3.create_bucket(Bucket=name)
    return name


def code_of(call, **arguments):
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


def test_an_object_with_all_that_is_said_about_it(s3, bucket):
    key = "a b/é+&?/../x.txt"
    written = s3.put_object(
        Bucket=bucket, Key=key, Body=b"hello", ContentType="text/plain", CacheControl="no-cache",
        Metadata={"origin": "here"}, Tagging="a=b&c=d%20e", ServerSideEncryption="aws:kms",
    )
    assert written["ETag"] == '"5d41402abc4b2a76b9719d911017c592"'
    assert written["ServerSideEncryption"] == "aws:kms"
    got = s3.get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
    assert got["Body"].read() == b"hello"
    assert got["ContentType"] == "text/plain" and got["CacheControl"] == "no-cache"
    assert got["Metadata"] == {"origin": "here"} and got["TagCount"] == 2
    assert got["ChecksumCRC32"] == "NhCmhg==" and got["ChecksumType"] == "FULL_OBJECT"
    tags = s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"]
    assert tags == [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d e"}]
    s3.put_object_tagging(Bucket=bucket, Key=key, Tagging={"TagSet": [{"Key": "<", "Value": "&"}]})
    assert s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"][0]["Key"] == "<"
    shown = s3.get_object(Bucket=bucket, Key=key, ResponseContentType="x/y")
    assert shown["ContentType"] == "x/y"
    assert code_of(s3.put_object, Bucket=bucket, Key="k", Metadata={"m": "x" * 2048}) == (
        "MetadataTooLarge")
    many = {f"name-{i}": str(i) for i in range(85)}
    s3.put_object(Bucket=bucket, Key="many", Metadata=many)
    assert s3.head_object(Bucket=bucket, Key="many")["Metadata"] == many


def test_ranges_and_conditions(s3, bucket):
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    etag = s3.head_object(Bucket=bucket, Key="k")["ETag"]

    def body(**arguments):
        return s3.get_object(Bucket=bucket, Key="k", **arguments)["Body"].read()

    assert body(Range="bytes=2-4") == b"234" and body(Range="bytes=-3") == b"789"
    assert s3.get_object(Bucket=bucket, Key="k", Range="bytes=8-")["ContentRange"] == "bytes 8-9/10"
    assert code_of(s3.get_object, Bucket=bucket, Key="k", Range="bytes=10-") == "InvalidRange"
    assert body(IfMatch=etag) == b"0123456789"
    assert code_of(s3.get_object, Bucket=bucket, Key="k", IfMatch='"x"') == "PreconditionFailed"
    assert code_of(s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=etag) == "304"
    assert code_of(s3.put_object, Bucket=bucket, Key="k", IfNoneMatch="*") == "PreconditionFailed"
    assert code_of(s3.put_object, Bucket=bucket, Key="new", IfMatch=etag) == "NoSuchKey"


def test_only_one_of_many_makes_the_object(s3, bucket):
    outcomes = []

    def put(number):
        try:
            s3.put_object(Bucket=bucket, Key="lock", Body=b"%d" % number, IfNoneMatch="*")
            outcomes.append("made")
        except ClientError as error:
            outcomes.append(error.response["Error"]["Code"])

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["PreconditionFailed"] * 7 + ["made"]


def test_lists_page_by_page(s3, bucket):
    keys = sorted(f"{folder}/{number} {'x' * number}" for folder in "abc" for number in range(9))
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for operation in ("list_objects_v2", "list_objects"):
        pages = list(s3.get_paginator(operation).paginate(
            Bucket=bucket, PaginationConfig={"PageSize": 5}))
        assert [entry["Key"] for page in pages for entry in page["Contents"]] == keys
        folders = list(s3.get_paginator(operation).paginate(
            Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 2}))
        assert [entry["Prefix"] for page in folders for entry in page["CommonPrefixes"]] == [
            "a/", "b/", "c/"]
    page = s3.list_objects_v2(Bucket=bucket, Prefix="b/", StartAfter=keys[12], FetchOwner=True)
    assert page["KeyCount"] == 5 and page["Contents"][0]["Owner"]["DisplayName"]
    assert code_of(s3.delete_bucket, Bucket=bucket) == "BucketNotEmpty"
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys]})
    assert len(deleted["Deleted"]) == 27 and "Errors" not in deleted
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    s3.delete_bucket(Bucket=bucket)
    assert code_of(s3.list_objects_v2, Bucket=bucket) == "NoSuchBucket"


def test_large_objects_by_the_transfer_manager(s3, bucket):
    data = random.Random(1).randbytes(13 * MIB + 7)
    config = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB)
    s3.upload_fileobj(io.BytesIO(data), bucket, "large", Config=config)
    about = s3.head_object(Bucket=bucket, Key="large", ChecksumMode="ENABLED")
    assert about["ETag"].endswith('-3"') and about["ChecksumType"] == "COMPOSITE"
    back = io.BytesIO()
    s3.download_fileobj(bucket, "large", back, Config=config)
    assert back.getvalue() == data
    s3.copy({"Bucket": bucket, "Key": "large"}, bucket, "copy", Config=config)
    assert s3.get_object(Bucket=bucket, Key="copy")["Body"].read() == data
    second = s3.get_object(Bucket=bucket, Key="large", PartNumber=2)
    assert second["Body"].read() == data[5 * MIB : 10 * MIB] and second["PartsCount"] == 3
    s3.copy_object(Bucket=bucket, Key="row", CopySource={"Bucket": bucket, "Key": "large"},
                   Metadata={"new": "1"}, MetadataDirective="REPLACE")
    assert s3.head_object(Bucket=bucket, Key="row")["Metadata"] == {"new": "1"}
    assert code_of(s3.copy_object, Bucket=bucket, Key="row",
                   CopySource={"Bucket": bucket, "Key": "row"}) == "InvalidRequest"
    upload = s3.create_multipart_upload(Bucket=bucket, Key="u")["UploadId"]
    assert code_of(s3.upload_part_copy, Bucket=bucket, Key="u", UploadId=upload, PartNumber=1,
                   CopySource={"Bucket": bucket, "Key": "none"}) == "NoSuchKey"


def test_an_upload_by_hand(s3, bucket):
    upload = s3.create_multipart_upload(
        Bucket=bucket, Key="k", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT",
        ContentType="x/y")["UploadId"]
    same = {"Bucket": bucket, "Key": "k", "UploadId": upload}
    parts = []
    for number, body in ((2, b"end"), (1, b"x" * 5 * MIB)):
        part = s3.upload_part(PartNumber=number, Body=body, ChecksumAlgorithm="CRC32", **same)
        parts.insert(0, {"PartNumber": number, "ETag": part["ETag"]})
    assert [part["Size"] for part in s3.list_parts(**same)["Parts"]] == [5 * MIB, 3]
    assert s3.list_multipart_uploads(Bucket=bucket)["Uploads"][0]["UploadId"] == upload
    wrong = [parts[0], {"PartNumber": 2, "ETag": parts[0]["ETag"]}]
    complete = s3.complete_multipart_upload
    assert code_of(complete, MultipartUpload={"Parts": wrong}, **same) == "InvalidPart"
    assert code_of(complete, MultipartUpload={"Parts": parts[::-1]}, **same) == "InvalidPartOrder"
    done = complete(MultipartUpload={"Parts": parts}, **same)
    assert done["ChecksumType"] == "FULL_OBJECT" and done["ETag"].endswith('-2"')
    assert complete(MultipartUpload={"Parts": parts}, **same)["ETag"] == done["ETag"]  # once more
    about = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert about["ContentType"] == "x/y" and len(about["Body"].read()) == 5 * MIB + 3
    assert code_of(s3.abort_multipart_upload, **same) == "NoSuchUpload"
    s3.put_object(Bucket=bucket, Key="k", Body=b"another")
    assert code_of(complete, MultipartUpload={"Parts": parts}, **same) == "NoSuchUpload"


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_every_checksum(s3, bucket, algorithm):
    if algorithm in ("CRC32C", "CRC64NVME"):
        pytest.importorskip("awscrt", reason="boto3 counts this checksum only with awscrt")
    s3.put_object(Bucket=bucket, Key="k", Body=b"hello", ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert got["Body"].read() == b"hello" and got[f"Checksum{algorithm}"]


def test_errors_and_what_is_not_there(s3, bucket):
    assert code_of(s3.get_object, Bucket=bucket, Key="none") == "NoSuchKey"
    assert code_of(s3.head_object, Bucket=bucket, Key="none") == "404"
    assert code_of(s3.head_bucket, Bucket="nosuch") == "404"
    assert code_of(s3.create_bucket, Bucket=bucket) == "BucketAlreadyOwnedByYou"
    assert code_of(s3.put_object, Bucket=bucket, Key="k" * 1025) == "KeyTooLongError"
    with pytest.raises(ClientError, match="GetBucketPolicy is not implemented here"):
        s3.get_bucket_policy(Bucket=bucket)
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] is None


HERE = """
ListBuckets CreateBucket HeadBucket DeleteBucket GetBucketLocation GetBucketVersioning GetBucketAcl
ListObjects ListObjectsV2 ListObjectVersions ListMultipartUploads DeleteObjects
GetObject HeadObject PutObject DeleteObject CopyObject GetObjectAcl GetObjectAttributes
GetObjectTagging PutObjectTagging DeleteObjectTagging
CreateMultipartUpload UploadPart UploadPartCopy ListParts CompleteMultipartUpload
AbortMultipartUpload
""".split()
ELSEWHERE = ["ListDirectoryBuckets", "WriteGetObjectResponse"]  # of hosts of their own


def example(shape, **given):
    """Something that a parameter of this shape may be."""
    if shape.type_name == "structure":
        names = set(shape.required_members) | set(shape.members) & set(given)
        if shape.is_tagged_union:
            names = [next(iter(shape.members))]
        return {name: given.get(name) or example(shape.members[name]) for name in names}
    if shape.type_name == "list":
        return [example(shape.member)]
    text = "x" * shape.metadata.get("min", 1)
    simple = {"string": text, "integer": 1, "long": 1, "boolean": True, "blob": b"x"}
    return shape.enum[0] if getattr(shape, "enum", None) else simple[shape.type_name]


def test_operations_that_are_not_there_are_named(s3, bucket):
    """All that boto3 knows of: none is taken for another one, and nothing changes."""
    model = s3.meta.service_model
    s3.put_object(Bucket=bucket, Key="k", Body=b"as it was")
    for name in sorted(set(model.operation_names) - {*HERE, *ELSEWHERE}):
        operation = model.operation_model(name)
        arguments = example(operation.input_shape, Bucket=bucket, Key="k")
        with pytest.raises(ClientError, match=f"NotImplemented.*The operation {name}"):
            s3._make_api_call(name, arguments)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"as it was"


def test_parameters_that_are_not_there_change_nothing(s3, bucket):
    """An append is no overwriting, and a condition that nobody looks at is none."""
    one = {"Bucket": bucket, "Key": "k"}
    s3.put_object(Body=b"as it was", **one)
    for call, arguments in (
        (s3.put_object, one | {"Body": b"more", "WriteOffsetBytes": 9}),
        (s3.put_object, one | {"Body": b"", "ObjectLockLegalHoldStatus": "ON"}),
        (s3.delete_object, one | {"IfMatchSize": 1}),
        (s3.delete_objects, {
            "Bucket": bucket, "Delete": {"Objects": [{"Key": "k", "ETag": "x"}]}}),
        (s3.create_bucket, {"Bucket": bucket + "-l", "ObjectLockEnabledForBucket": True}),
    ):
        assert code_of(call, **arguments) == "NotImplemented"
    assert s3.get_object(**one)["Body"].read() == b"as it was"
    assert code_of(s3.head_bucket, Bucket=bucket + "-l") == "404"


def test_a_storage_class_is_said_everywhere(s3, bucket):
    def classes(key):
        one = {"Bucket": bucket, "Key": key}
        about = s3.get_object_attributes(ObjectAttributes=["StorageClass"], **one)
        said = {s3.head_object(**one).get("StorageClass", "STANDARD"), about["StorageClass"]}
        for call, member in ((s3.list_objects, "Contents"), (s3.list_objects_v2, "Contents"),
                             (s3.list_object_versions, "Versions")):
            said |= {row["StorageClass"] for row in call(Bucket=bucket, Prefix=key)[member]}
        return said

    source = {"Bucket": bucket, "Key": "k"}
    s3.put_object(Body=b"x", StorageClass="STANDARD_IA", Metadata={"a": "b"}, **source)
    assert classes("k") == {"STANDARD_IA"}
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=source)
    assert classes("copy") == {"STANDARD"}
    s3.copy_object(CopySource=source, StorageClass="GLACIER_IR", **source)
    assert classes("k") == {"GLACIER_IR"}
    assert s3.head_object(**source)["Metadata"] == {"a": "b"}
    assert code_of(s3.put_object, Body=b"", StorageClass="COLD", **source) == "InvalidStorageClass"
    upload = s3.create_multipart_upload(StorageClass="ONEZONE_IA", **source)["UploadId"]
    assert s3.list_parts(UploadId=upload, **source)["StorageClass"] == "ONEZONE_IA"
    listed = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [each["StorageClass"] for each in listed] == ["ONEZONE_IA"]
    s3.abort_multipart_upload(UploadId=upload, **source)


def test_versions_owners_and_attributes(s3, bucket):
    for key in ("a/1", "a/2", "b"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"hello", ChecksumAlgorithm="CRC32")
    pages = list(s3.get_paginator("list_object_versions").paginate(
        Bucket=bucket, PaginationConfig={"PageSize": 2}))
    versions = [each for page in pages for each in page["Versions"]]
    assert [each["Key"] for each in versions] == ["a/1", "a/2", "b"] and len(pages) == 2
    assert all(each["VersionId"] == "null" and each["IsLatest"] for each in versions)
    folders = s3.list_object_versions(Bucket=bucket, Delimiter="/")
    assert [each["Prefix"] for each in folders["CommonPrefixes"]] == ["a/"]
    for acl in (s3.get_bucket_acl(Bucket=bucket), s3.get_object_acl(Bucket=bucket, Key="b")):
        assert [each["Permission"] for each in acl["Grants"]] == ["FULL_CONTROL"]
        assert acl["Grants"][0]["Grantee"]["ID"] == acl["Owner"]["ID"]
    asked = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    about = s3.get_object_attributes(Bucket=bucket, Key="b", ObjectAttributes=asked)
    assert about["ETag"] == "5d41402abc4b2a76b9719d911017c592" and about["ObjectSize"] == 5
    assert about["Checksum"] == {"ChecksumCRC32": "NhCmhg==", "ChecksumType": "FULL_OBJECT"}
    assert about["StorageClass"] == "STANDARD" and "ObjectParts" not in about
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [
        {"Key": each["Key"], "VersionId": each["VersionId"]} for each in versions]})
    assert "Versions" not in s3.list_object_versions(Bucket=bucket)
