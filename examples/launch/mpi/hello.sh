#!/bin/sh
# Placeholder for an MPI program: prints its rank, the number of processes, and its task.
echo "process $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, in task $MUSTER_TASK_INDEX"
