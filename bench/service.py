#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The job service under load, beside what is promised of it:

  first     from the submission of a job to its first line of output
  kills     jobs queued and running while the service is killed again and again: how many were
            lost, ended wrongly, or ran twice
  many      memory, lists and searches with many finished jobs

Uses a build (SHOAL_BUILD, default build/release) and boto3.
"""

import argparse
import os
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

ENDED = ("Completed", "Failed", "Stopped")


class Bench:
    """A service whose instances take a twentieth of the machine each."""

    def __init__(self, folder):
        from services import Service

        self.make, self.folder = Service, folder
        folder.mkdir(mode=0o700)
        (folder / "images.conf").write_text("* root=/\n")
        (folder / "instances.conf").write_text("* cores=1/20 memory=1/20\n")
        self.start()
        self.service.client("s3").create_bucket(Bucket="data")

    def start(self):
        self.service = self.make(self.folder)
        self.client = self.service.client("sagemaker", parameter_validation=False)

    def kill(self):
        self.service.process.kill()
        self.service.process.wait()

    def create(self, name, script):
        self.client.create_training_job(
            TrainingJobName=name,
            RoleArn="arn:aws:iam::000000000000:role/shoal",
            AlgorithmSpecification={
                "TrainingImage": "mine", "TrainingInputMode": "File",
                "ContainerEntrypoint": ["/bin/sh", "-c"], "ContainerArguments": [script],
            },
            OutputDataConfig={"S3OutputPath": "s3://data/"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 600},
            HyperParameters={"lr": f"0.{sum(map(ord, name))}", "epochs": "3"},
        )

    def describe(self, name):
        return self.client.describe_training_job(TrainingJobName=name)

    def wait(self, name):
        while True:
            job = self.describe(name)
            if job["TrainingJobStatus"] in ENDED:
                return job
            time.sleep(0.02)

    def lines(self, name):
        files = (self.folder / "logs" / name).glob("algo-*")
        return [line for file in files for line in file.read_text().splitlines()]

    def memory_mib(self):
        status = Path(f"/proc/{self.service.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def first(bench, rounds):
    """Seconds to the first line, median and worst."""
    taken = []
    for i in range(rounds):
        began = time.monotonic()
        bench.create(f"first-{i}", "echo here")
        while not bench.lines(f"first-{i}"):
            time.sleep(0.001)
        taken.append(time.monotonic() - began)
        bench.wait(f"first-{i}")
    return f"median {statistics.median(taken):.3f} s, worst {max(taken):.3f} s of {rounds}"


def kills(bench, jobs, times):
    """Every job runs for a second or two; a kill every so often until all have ended."""
    for i in range(jobs):
        bench.create(f"kill-{i}", f"echo {i}; sleep 1.{i % 10}; exit {i % 3}")
    running = 0
    for _ in range(times):
        time.sleep(0.7)
        found = bench.client.search(
            Resource="TrainingJob", MaxResults=100, SearchExpression={"Filters": [
                {"Name": "SecondaryStatus", "Operator": "Equals", "Value": "Training"}]})
        running = max(running, len(found["Results"]))
        bench.kill()
        bench.start()
    wrong = []
    for i in range(jobs):
        job = bench.wait(f"kill-{i}")
        status = "Failed" if i % 3 else "Completed"
        printed = [line[14:] for line in bench.lines(f"kill-{i}")]
        if job["TrainingJobStatus"] != status or printed != [str(i)]:
            wrong.append((i, job["TrainingJobStatus"], job.get("FailureReason"), printed))
    for one in wrong:
        print("wrong:", *one)
    return f"{jobs} jobs, up to {running} running, {times} kills: {len(wrong)} lost or wrong"


# What a copy of a job has of its own; all other columns are the origin's.
OWN_COLUMNS = {
    "job": {
        "id": ":copy",
        "name": "'copy-' || :copy",
        "arn": "'arn:copy-' || :copy",
        "created_ms": "created_ms + :copy",
        "modified_ms": "modified_ms + :copy",
    },
    "request": {"job": ":copy"},
    "transition": {"job": ":copy"},
    "property": {"job": ":copy"},
}


def copying(database, table):
    """The statement that copies a table's rows of one job, whatever columns it has."""
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    own = OWN_COLUMNS[table]
    key = "id" if table == "job" else "job"
    return (
        f"INSERT INTO {table} ({', '.join(columns)})"
        f" SELECT {', '.join(own.get(name, name) for name in columns)}"
        f" FROM {table} WHERE {key} = :origin"
    )


def many(bench, jobs):
    """Copies of one finished job, made in the database while the service is down."""
    bench.create("origin", "echo loss=0.5")
    bench.wait("origin")
    bench.kill()
    with sqlite3.connect(bench.folder / "service.db") as database:
        (origin,) = database.execute("SELECT id FROM job WHERE name = 'origin'").fetchone()
        statements = [copying(database, table) for table in OWN_COLUMNS]
        for i in range(jobs):
            for sql in statements:
                database.execute(sql, {"copy": 1000000 + i, "origin": origin})
    database.close()
    bench.start()
    calls = {
        "list": lambda: bench.client.list_training_jobs(MaxResults=100),
        "list by name": lambda: bench.client.list_training_jobs(
            MaxResults=100, SortBy="Name", NameContains="99"),
        "search by status": lambda: bench.client.search(
            Resource="TrainingJob", SearchExpression={"Filters": [
                {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Completed"}]}),
        "search by parameter": lambda: bench.client.search(
            Resource="TrainingJob", SortBy="CreationTime", SearchExpression={"Filters": [
                {"Name": "HyperParameters.epochs", "Operator": "LessThan", "Value": "4"},
                {"Name": "ResourceConfig.InstanceCount", "Operator": "Equals", "Value": "1"}]}),
        "search, sorted by parameter": lambda: bench.client.search(
            Resource="TrainingJob", SortBy="HyperParameters.lr", SearchExpression={"Filters": [
                {"Name": "TrainingJobName", "Operator": "Contains", "Value": "copy"}]}),
    }
    said = []
    for name, call in calls.items():
        taken = []
        for _ in range(20):
            began = time.monotonic()
            call()
            taken.append(time.monotonic() - began)
        said.append(f"{name} {1000 * statistics.median(taken):.1f} ms")
    return f"{jobs} jobs: {bench.memory_mib():.0f} MiB; " + ", ".join(said)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["first", "kills", "many"])
    parser.add_argument("--jobs", type=int, default=200, help="of kills")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--finished", type=int, default=10000, help="jobs of many")
    arguments = parser.parse_args()
    os.environ.setdefault("SHOAL_BUILD", str(ROOT / "build/release"))
    parts = {
        "first": lambda bench: first(bench, 20),
        "kills": lambda bench: kills(bench, arguments.jobs, arguments.kills),
        "many": lambda bench: many(bench, arguments.finished),
    }
    for name in arguments.parts:
        with tempfile.TemporaryDirectory(prefix="shoal-bench-service-") as folder:
            bench = Bench(Path(folder) / "service")
            print(f"{name}: {parts[name](bench)}", flush=True)
            bench.service.stop()


if __name__ == "__main__":
    main()
