#!/usr/bin/env bash
# Trains under Slurm for longer than one time limit, and through pre-emption and nodes that fail:
#
#     sbatch deploy/slurm.sh --dataset cora --epochs 2000 --checkpoint-every 50 --out runs/cora
#
# Words after the script are flags of `graphtheta train`. Change the numbers below, or give them to sbatch.
#SBATCH --job-name=graphtheta
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
# the same job again after a node failed or after pre-emption, with its output appended
#SBATCH --requeue
#SBATCH --open-mode=append
# this script is told two minutes before the end, in time for the last step and its checkpoint
#SBATCH --signal=B:TERM@120
set -u

# what srun starts no longer follows --cpus-per-task by itself
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
# MPICH and the wheel of it speak pmi2; for Open MPI give pmix
graphtheta launch -n "$SLURM_NTASKS" --max-restarts 3 --mpiexec "srun --mpi=${PMI:-pmi2} --kill-on-bad-exit=1" train "$@" &
job=$!

trap 'trap "" TERM; kill -TERM "$job"' TERM

wait "$job"
code=$?
# a trap ends the wait, but not the job
if [ "$code" -eq 143 ]; then
    wait "$job"
    code=$?
fi

# 75: stopped with a checkpoint and not at its end; the same command resumes from the checkpoint
if [ "$code" -eq 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
