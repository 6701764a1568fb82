#!/usr/bin/env bash
# Trains under Slurm for longer than one time limit, and through pre-emption and nodes that fail:
#
#     sbatch deploy/slurm.sh --dataset cora --epochs 2000 --checkpoint-every 50 --out runs/cora
#
# Words after the script are flags of `graphtheta train`. Change the numbers below, or give them to
# sbatch. Variables of the caller that the script reads:
#
#     GRAPHTHETA_ENV    folder of the environment (venv or conda), if none is active
#     GRAPHTHETA_DATA   folder of data sets
#     GRAPHTHETA_CACHE  folder of compiled kernels [~/.cache/graphtheta]
#     PMI               interface of srun and MPI: pmi2 for MPICH and Intel MPI, pmix for Open MPI
#SBATCH --job-name=graphtheta
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=04:00:00
# a core is one processor, also where it has two hardware threads
#SBATCH --hint=nomultithread
# the same job again after a node failed or after pre-emption, with its output appended
#SBATCH --requeue
#SBATCH --open-mode=append
# this script is told two minutes before the end, in time for the last step and its checkpoint
#SBATCH --signal=B:TERM@120
set -u

# modules of the cluster belong here, such as: module load mpich
if [ -n "${GRAPHTHETA_ENV:-}" ]; then
    export PATH="$GRAPHTHETA_ENV/bin:$PATH"
fi
if ! command -v graphtheta >/dev/null; then
    echo "graphtheta is not found; give the folder of its environment in GRAPHTHETA_ENV" >&2
    exit 2
fi

# what srun starts no longer follows --cpus-per-task by itself, and has no variables of this script
# after sbatch --export=NONE
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
export SLURM_EXPORT_ENV=ALL
# an upper limit: clusters often set it to 1
export OMP_NUM_THREADS="$SRUN_CPUS_PER_TASK"

graphtheta launch -n "$SLURM_NTASKS" --max-restarts 3 \
    --mpiexec "srun --mpi=${PMI:-pmi2} --kill-on-bad-exit=1" train "$@" &
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
