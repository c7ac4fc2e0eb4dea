#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures `shoal serve` as an S3 service, beside the machine's limits and beside moto's server.

    bench/s3.py                        all of it (docs/s3.md has what it shows)
    bench/s3.py --only large --rounds 3
    bench/s3.py --only list --keys 1000000

large   PUT and GET of one object, by `shoal s3 cp` and by boto3, to both servers by turns. Beside
        them in each round: the disk's roof (as many bytes written and synced) and the loopback's
        (as many bytes from one process to another over TCP)
small   requests of 1 KiB objects that are signed and sent again, on --connections at one time
list    a page of 1,000 keys at random places among --keys, whose objects are copies of one; a page
        of as many folders; and all pages one behind the other

Shown are medians of the rounds. Servers keep their data below --folder, which should be on the disk
that counts. Writes s3.json below --out.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import boto3
import machine
from boto3.s3.transfer import TransferConfig
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

ROOT = Path(__file__).resolve().parent.parent
SHOAL = Path(os.environ.get("SHOAL_BUILD", ROOT / "build/release")).resolve() / "shoal"
BLOCK = 4 << 20
BUCKET = "bench"
MOTO = (
    "from moto.server import ThreadedMotoServer as S; import logging, signal; "
    "logging.getLogger('werkzeug').setLevel('ERROR'); "
    "s = S('127.0.0.1', 0, verbose=False); s.start(); "
    "print('http://%s:%d' % s.get_host_and_port(), flush=True); signal.pause()"
)


class Server:
    """A service that runs, and how a client calls it."""

    def __init__(self, name, folder, *arguments):
        self.name, self.folder = name, folder
        if name == "shoal":
            command = [SHOAL, "serve", "--dir", folder, "--listen", "127.0.0.1:0", *arguments]
        else:
            command = [sys.executable, "-c", MOTO]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(folder)}
        )
        self.url = self.process.stdout.readline().strip()
        self.key, self.secret = "AKIAEXAMPLE", "invented"
        if name == "shoal":
            self.key, self.secret = (folder / "keys").read_text().splitlines()[1].split()[:2]
        self.client = boto3.client(
            "s3", endpoint_url=self.url, region_name="us-east-1", aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
        )

    def environment(self):
        return os.environ | {
            "AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": "us-east-1",
        }

    def cpu_s(self):
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def seconds(call):
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


# ---- large objects ---------------------------------------------------------------------------


def disk_write(path, size):
    """Writes and syncs as many bytes, which lie in memory."""
    block = bytes(BLOCK)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(size // BLOCK):
        os.write(fd, block)
    os.fdatasync(fd)
    os.close(fd)
    os.unlink(path)


def loopback_send(port, path, size):
    with socket.create_connection(("127.0.0.1", port)) as out, open(path, "rb") as file:
        done = 0
        while done < size:
            done += os.sendfile(out.fileno(), file.fileno(), done, size - done)


def loopback(path, size):
    """From a file in memory to another process, which takes the bytes and drops them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = multiprocessing.Process(
            target=loopback_send, args=(server.getsockname()[1], path, size)
        )
        sender.start()
        connection, _ = server.accept()
        buffer = bytearray(512 << 10)
        with connection:
            while connection.recv_into(buffer):
                pass
        sender.join()


def shoal_copy(server, *words):
    subprocess.run(
        [SHOAL, "s3", "cp", *map(str, words), "--quiet"], check=True, env=server.environment(),
        stdout=subprocess.DEVNULL,
    )


def large_calls(server, file, down):
    """Name of each transfer, whether it is a PUT, and the call."""
    there = f"s3://{BUCKET}/"
    config = TransferConfig(multipart_chunksize=16 << 20, max_concurrency=8)

    def put_whole():
        with open(file, "rb") as body:
            server.client.put_object(Bucket=BUCKET, Key="whole", Body=body)

    def get_whole():
        body = server.client.get_object(Bucket=BUCKET, Key="whole")["Body"]
        while body.read(BLOCK):
            pass

    return {
        "put by shoal s3": lambda: shoal_copy(server, file, there + "shoal"),
        "put by boto3, in parts": lambda: server.client.upload_file(
            str(file), BUCKET, "parts", Config=config
        ),
        "put by boto3, at once": put_whole,
        "get by shoal s3": lambda: shoal_copy(server, there + "shoal", down),
        "get by shoal s3, dropped": lambda: shoal_copy(server, there + "shoal", "-"),
        "get by boto3": get_whole,
    }


def measure_large(servers, arguments):
    size, folder = arguments.bytes, arguments.folder
    file, down = folder / "body", folder / "down"
    with open(file, "wb") as out:
        block = random.Random(1).randbytes(BLOCK)
        for _ in range(size // BLOCK):
            out.write(block)
    rates = {}

    def note(name, call, server=None):
        before = server.cpu_s() if server else 0
        took = seconds(call)
        row = rates.setdefault(name, {"mb_per_s": [], "server_cpu_s": []})
        row["mb_per_s"].append(size / took / 1e6)
        if server:
            row["server_cpu_s"].append(server.cpu_s() - before)

    for _ in range(arguments.rounds):
        note("disk: written and synced", lambda: disk_write(folder / "roof", size))
        note("loopback: sent and received", lambda: loopback(file, size))
        for server in servers:
            for name, call in large_calls(server, file, down).items():
                note(f"{server.name}: {name}", call, server)
                os.sync()
    file.unlink()
    down.unlink()
    return rates


# ---- small requests --------------------------------------------------------------------------


def signed_bytes(server, method, key, body):
    """A request as it goes over the wire, which a server takes again for 15 minutes."""
    request = AWSRequest(method=method, url=f"{server.url}/{BUCKET}/{key}", data=body)
    request.context["client_config"] = None
    S3SigV4Auth(Credentials(server.key, server.secret), "s3", "us-east-1").add_auth(request)
    head = f"{method} /{BUCKET}/{key} HTTP/1.1\r\nHost: {server.url.removeprefix('http://')}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_reply(connection, has_body=True):
    """One reply off a connection: whether the connection stays, and the body."""
    reply = b""
    while b"\r\n\r\n" not in reply:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the server closed a connection")
        reply += more
    head, _, body = reply.partition(b"\r\n\r\n")
    if head[9:12] not in (b"200", b"204"):
        raise RuntimeError(head.decode())
    lines = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:])
    length = int(lines.get(b"content-length", 0)) if has_body else 0
    body = bytearray(body)
    while len(body) < length:
        body += connection.recv(65536)
    return head.startswith(b"HTTP/1.1") and lines.get(b"connection") != b"close", body


def send_for(address, requests, deadline, counts, index):
    """Each connection has one request under way until the deadline."""
    connections = [None] * len(requests)
    has_body = not requests[0].startswith(b"HEAD")
    while time.perf_counter() < deadline:
        for i, request in enumerate(requests):
            if connections[i] is None:
                connections[i] = socket.create_connection(address)
                connections[i].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connections[i].sendall(request)
        for i, connection in enumerate(connections):
            if not read_reply(connection, has_body)[0]:
                connection.close()
                connections[i] = None
        counts[index] += len(requests)


def small_rate(server, method, count, span_s):
    body = bytes(1024) if method == "PUT" else b""
    requests = [signed_bytes(server, method, f"small-{i}", body) for i in range(count)]
    host, _, port = server.url.removeprefix("http://").partition(":")
    counts = multiprocessing.Array("l", 2)
    deadline = time.perf_counter() + span_s
    begun = time.perf_counter()
    senders = [
        multiprocessing.Process(
            target=send_for, args=((host, int(port)), requests[i::2], deadline, counts, i)
        )
        for i in range(2)
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return sum(counts) / (time.perf_counter() - begun)


def measure_small(servers, arguments):
    rates = {}
    for _ in range(arguments.rounds):
        for server in servers:
            # moto takes a new connection, and a new thread, for each request.
            count = arguments.connections if server.name == "shoal" else 8
            for method in ("PUT", "GET", "HEAD"):
                rates.setdefault(f"{server.name}: {method}", []).append(
                    small_rate(server, method, count, arguments.span)
                )
    return rates


# ---- lists -----------------------------------------------------------------------------------


def fill(folder, count):
    """As many keys as wanted, whose contents are one object's: rows in the index of a service that
    is stopped, because a million requests take minutes."""
    with closing(sqlite3.connect(folder / "s3/index.db")) as index, index:
        names = [row[1] for row in index.execute("PRAGMA table_info(object)")]
        others = ", ".join(name for name in names if name != "key")
        index.execute(
            "WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
            f"INSERT INTO object(key, {others}) "
            "SELECT CAST(printf('data/%04d/part-%07d.parquet', i / 1000, i) AS BLOB), "
            f"{others} FROM n, object WHERE key = CAST('source' AS BLOB)",
            (count,),
        )
        index.execute("UPDATE content SET refs = refs + ?", (count,))


class Pages:
    """Lists of a service without signatures, raw: boto3's reading takes longer than the server."""

    def __init__(self, server):
        self.host = server.url.removeprefix("http://")
        host, _, port = self.host.partition(":")
        self.connection = socket.create_connection((host, int(port)))

    def page(self, query):
        head = f"GET /{BUCKET}?list-type=2&{query} HTTP/1.1\r\nHost: {self.host}\r\n\r\n"
        self.connection.sendall(head.encode())
        return read_reply(self.connection)[1]

    def page_ms(self, query):
        return seconds(lambda: self.page(query)) * 1000

    def all_keys(self):
        """How many keys all pages have together, one behind the other."""
        count, token = 0, ""
        while True:
            page = self.page(token)
            count += page.count(b"<Key>")
            found = page.partition(b"<NextContinuationToken>")[2]
            if not found:
                return count
            token = "continuation-token=" + found[: found.index(b"<")].decode()


def measure_list(server, arguments):
    pages, source, times = Pages(server), random.Random(2), []
    for _ in range(arguments.pages):
        i = source.randrange(max(1, arguments.keys - 1000))
        after = f"data%2F{i // 1000:04d}%2Fpart-{i:07d}.parquet"
        times.append(pages.page_ms(f"start-after={after}"))
    times.sort()
    folders = [pages.page_ms("prefix=data%2F&delimiter=%2F") for _ in range(20)]
    begun = time.perf_counter()
    if pages.all_keys() != arguments.keys + 1:
        raise RuntimeError("the pages don't have all keys")
    return {
        "keys": arguments.keys, "page_ms": median(times), "slowest_page_ms": times[-1],
        "page_of_folders_ms": median(folders), "all_pages_s": time.perf_counter() - begun,
        "memory_mib": server.memory_mib(),
    }


# ---- the whole -------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("large", "small", "list"), action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--span", type=float, default=2.0, help="seconds of each small measurement")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--without-moto", action="store_true")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/s3")
    parser.add_argument("--out", type=Path, default=ROOT / "out/bench")
    return parser.parse_args()


def with_servers(arguments, measure):
    names = ["shoal"] if arguments.without_moto else ["shoal", "moto"]
    servers = []
    shutil.rmtree(arguments.folder, ignore_errors=True)
    try:
        for name in names:
            (arguments.folder / name).mkdir(parents=True, exist_ok=True)
            servers.append(Server(name, arguments.folder / name))
            servers[-1].client.create_bucket(Bucket=BUCKET)
        return measure(servers, arguments)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(arguments.folder, ignore_errors=True)


def list_alone(arguments):
    shutil.rmtree(arguments.folder, ignore_errors=True)
    folder = arguments.folder / "list"
    folder.mkdir(parents=True)
    server = Server("shoal", folder, "--no-auth")
    try:
        server.client.create_bucket(Bucket=BUCKET)
        server.client.put_object(Bucket=BUCKET, Key="source", Body=b"one")
        server.stop()
        fill(folder, arguments.keys)
        server = Server("shoal", folder, "--no-auth")
        return measure_list(server, arguments)
    finally:
        server.stop()
        shutil.rmtree(arguments.folder, ignore_errors=True)


def show(result):
    for name, row in result.get("large", {}).items():
        rates = row["mb_per_s"]
        cpu = f"{median(row['server_cpu_s']):8.2f} s" if row["server_cpu_s"] else ""
        print(f"{name:40} {median(rates):8.0f} MB/s {min(rates):6.0f} to {max(rates):<6.0f}{cpu}")
    for name, rates in result.get("small", {}).items():
        print(f"{name:40} {median(rates):8.0f} requests/s {min(rates):6.0f} to {max(rates):.0f}")
    for name, value in result.get("list", {}).items():
        print(f"{name:40} {value:12.1f}")


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the servers end with this
    wanted = arguments.only or ["large", "small", "list"]
    result = {"machine": machine.describe(), "arguments": vars(arguments)}
    if "large" in wanted:
        result["large"] = with_servers(arguments, measure_large)
    if "small" in wanted:
        result["small"] = with_servers(arguments, measure_small)
    if "list" in wanted:
        result["list"] = list_alone(arguments)
    show(result)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "s3.json").write_text(json.dumps(result, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
