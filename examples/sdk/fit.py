# SPDX-License-Identifier: Apache-2.0
"""Trains on two instances of this machine by the SageMaker SDK 2.x: digits from a bucket, the model
in the bucket.

    build/release/shoal serve &
    eval "$(build/release/shoal env)"
    .venv-sdk/v2/bin/python examples/sdk/fit.py digits.csv

Nothing in it is Shoal's: with keys and a role of AWS it trains there.
"""

import argparse
import tarfile
import tempfile
from pathlib import Path

import sagemaker
from sagemaker.pytorch import PyTorch
from sagemaker.s3 import S3Downloader


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", help="a CSV file: 64 pixels and the digit in each line")
    parser.add_argument("--role", help="default: the one in the SDK's configuration")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--quiet", action="store_true", help="don't wait for the job's output")
    arguments = parser.parse_args()

    session = sagemaker.Session()
    data = session.upload_data(arguments.data, key_prefix="digits")
    estimator = PyTorch(
        entry_point="train.py",
        source_dir=str(Path(__file__).parent / "code"),
        role=arguments.role,
        instance_type="ml.p4d.24xlarge",
        instance_count=arguments.instances,
        framework_version="2.0.1",
        py_version="py310",
        distribution={"smdistributed": {"dataparallel": {"enabled": True}}},
        hyperparameters={"epochs": arguments.epochs},
        metric_definitions=[{"Name": "accuracy", "Regex": "accuracy=([0-9.]+)"}],
        sagemaker_session=session,
    )
    estimator.fit(data, logs=not arguments.quiet)
    with tempfile.TemporaryDirectory() as folder:
        S3Downloader.download(estimator.model_data, folder, sagemaker_session=session)
        with tarfile.open(Path(folder) / "model.tar.gz") as archive:
            files = ", ".join(archive.getnames())
    print(f"{estimator.latest_training_job.name}: {estimator.model_data} holds {files}")


if __name__ == "__main__":
    main()
