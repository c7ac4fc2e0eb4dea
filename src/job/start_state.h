/* SPDX-License-Identifier: Apache-2.0 */
/* start_state.h: what the files start*.c share; nobody else's. */
#ifndef SHOAL_JOB_START_STATE_H
#define SHOAL_JOB_START_STATE_H

/* Shoal's own parts in an instance. */
#define START_SHOAL   "/opt/shoal"
#define START_PROGRAM START_SHOAL "/bin/shoal"

/* Hyperparameters of the public SDK. */
#define START_PREFIX              "sagemaker_"
#define START_PROGRAM_NAME        "sagemaker_program"
#define START_SUBMIT_DIRECTORY    "sagemaker_submit_directory"
#define START_MPI                 "sagemaker_mpi_enabled"
#define START_MPI_RANKS           "sagemaker_mpi_num_of_processes_per_host"
#define START_MPI_OPTIONS         "sagemaker_mpi_custom_mpi_options"
#define START_DATA_PARALLEL       "sagemaker_distributed_dataparallel_enabled"
#define START_DATA_OPTIONS        "sagemaker_distributed_dataparallel_custom_mpi_options"
#define START_PYTORCH_DDP         "sagemaker_pytorch_ddp_enabled"
#define START_TORCH_DISTRIBUTED   "sagemaker_torch_distributed_enabled"
#define START_PYTORCH_XLA         "sagemaker_pytorch_xla_multi_worker_enabled"
#define START_PARAMETER_SERVER    "sagemaker_parameter_server_enabled"
#define START_MIRRORED            "sagemaker_multi_worker_mirrored_strategy_enabled"
#define START_DISTRIBUTION_GROUPS "sagemaker_distribution_instance_groups"

#endif
