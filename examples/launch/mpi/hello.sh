#!/bin/sh
# Stands for an MPI program: says which of how many it is, and whose task it is part of.
echo "process $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, in task $MUSTER_TASK_INDEX"
