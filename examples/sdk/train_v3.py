# SPDX-License-Identifier: Apache-2.0
"""The same as fit.py by the SageMaker SDK 3.x.

    .venv-sdk/v3/bin/python examples/sdk/train_v3.py digits.csv
"""

import argparse
from pathlib import Path

from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import Torchrun

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.0.1-gpu-py310"
ROLE = "arn:aws:iam::000000000000:role/shoal"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data", help="a CSV file: 64 pixels and the digit in each line")
    parser.add_argument("--role", default=ROLE)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--quiet", action="store_true", help="don't wait for the job's output")
    arguments = parser.parse_args()

    session = Session()
    data = session.upload_data(arguments.data, session.default_bucket(), key_prefix="digits")
    trainer = ModelTrainer(
        sagemaker_session=session,
        training_image=IMAGE,
        source_code=SourceCode(
            source_dir=str(Path(__file__).parent / "code"), entry_script="train.py"
        ),
        compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=arguments.instances),
        distributed=Torchrun(),
        hyperparameters={"epochs": arguments.epochs},
        base_job_name="digits",
        role=arguments.role,
    )
    trainer.train(
        input_data_config=[InputData(channel_name="training", data_source=data)],
        logs=not arguments.quiet,
    )
    job = trainer._latest_training_job
    print(f"{job.training_job_name}: {job.model_artifacts.s3_model_artifacts}")


if __name__ == "__main__":
    main()
