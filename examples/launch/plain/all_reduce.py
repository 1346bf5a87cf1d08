"""Computes the sum of one number per task of a gang, with the standard library only."""

import os
import socket
import sys
import time

CONNECT_SECONDS_MAX = 30
RANK = int(os.environ["RANK"])
WORLD_SIZE = int(os.environ["WORLD_SIZE"])
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def sum_up(own):
    """Rank 0: receives the other numbers, and sends the sum. A connection that sends no number is not a
    member: ports are reused, and a stranger may look for the previous owner."""
    others, total = [], own
    with socket.create_server(("", MASTER[1])) as server:
        while len(others) < WORLD_SIZE - 1:
            other, _ = server.accept()
            other.settimeout(CONNECT_SECONDS_MAX)
            try:
                total += int(other.makefile().readline())
            except (OSError, ValueError):
                other.close()
            else:
                others.append(other)
    for other in others:
        with other:
            other.sendall(f"{total}\n".encode())
    return total


def connect():
    """Rank 0 may be a moment behind: the members start together, but not at the same instant."""
    until = time.monotonic() + CONNECT_SECONDS_MAX
    while True:
        try:
            return socket.create_connection(MASTER, timeout=CONNECT_SECONDS_MAX)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def send_and_receive(own):
    """The others: send rank 0 their number, and receive the sum."""
    with connect() as master:
        master.sendall(f"{own}\n".encode())
        return int(master.makefile().readline())


def main():
    own = RANK + 1
    total = sum_up(own) if RANK == 0 else send_and_receive(own)
    print(f"rank {RANK} of {WORLD_SIZE}: the sum is {total}", flush=True)
    return 0 if total == WORLD_SIZE * (WORLD_SIZE + 1) // 2 else 1


if __name__ == "__main__":
    sys.exit(main())
