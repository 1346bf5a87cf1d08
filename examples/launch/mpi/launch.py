"""Runs mpirun over the hosts of a gang, without ssh: launch.py PROGRAM [ARGUMENT]...

Rank 0 runs mpirun. The other tasks connect to rank 0 and wait for a command each. mpirun calls this file again in place
of ssh (launch.py --agent HOST COMMAND...); the agent forwards the command, and exits with its exit code.
"""

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time

CONNECT_SECONDS_MAX = 60
# A connection must identify itself at once: ports are reused, and a stranger may look for the previous
# owner.
GREETING_SECONDS_MAX = 10
# Host names for mpirun: no machine has them, so mpirun starts a remote agent for every host.
NODE = "muster-node-"


def send(connection, **message):
    connection.sendall((json.dumps(message) + "\n").encode())


def receive(lines):
    line = lines.readline()
    return json.loads(line) if line else None


def processes_per_host():
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    return int(os.environ.get("PROCESSES_PER_HOST", 0)) or max(1, len(gpus))


class Members:
    """The tasks on the other hosts, by the rank of their host."""

    def __init__(self):
        self.known = {}
        self.changed = threading.Condition()

    def add(self, node, connection, lines):
        with self.changed:
            self.known[node] = (connection, lines)
            self.changed.notify_all()

    def get(self, node):
        with self.changed:
            if not self.changed.wait_for(lambda: node in self.known, CONNECT_SECONDS_MAX):
                raise TimeoutError(f"the task on host {node} of the gang did not connect")
            return self.known[node]

    def dismiss(self):
        with self.changed:
            for connection, _ in self.known.values():
                connection.shutdown(socket.SHUT_RDWR)


def run_on(members, agent, lines, asked):
    """Runs mpirun's command on a member's host, and sends mpirun's agent the exit code."""
    try:
        member, answers = members.get(asked["node"])
        send(member, command=asked["command"])
        ended = receive(answers)
        send(agent, code=ended["code"] if ended else 255)
    except (OSError, TimeoutError) as error:
        print(f"launch.py: {error}", file=sys.stderr, flush=True)
        send(agent, code=255)
    finally:
        lines.close()
        agent.close()


def greet(connection, members):
    """Both members and agents connect here: the first line tells them apart. Any other connection is closed."""
    connection.settimeout(GREETING_SECONDS_MAX)
    lines = connection.makefile()
    try:
        first = receive(lines)
        if not isinstance(first, dict) or not ("member" in first or {"node", "command"} <= first.keys()):
            raise ValueError(f"unexpected greeting {first!r}")
    except (OSError, ValueError) as error:
        print(f"launch.py: closed an unknown connection: {error}", file=sys.stderr, flush=True)
        connection.close()
        return
    connection.settimeout(None)
    if "member" in first:
        members.add(first["member"], connection, lines)
    else:
        run_on(members, connection, lines, first)


def serve(server, members):
    """Accepts connections until the server is closed, each in its own thread: a silent one blocks no other."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        threading.Thread(target=greet, args=(connection, members), daemon=True).start()


def lead(program):
    """Rank 0: runs mpirun, and exits with its exit code."""
    members = Members()
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    threading.Thread(target=serve, args=(server, members), daemon=True).start()
    nodes = sum(1 for _ in open(os.environ["MUSTER_HOSTFILE"]))
    slots = processes_per_host()
    with open("hosts." + os.environ["MUSTER_EPOCH"], "w") as hosts:
        hosts.write(f"localhost slots={slots}\n")
        hosts.writelines(f"{NODE}{node} slots={slots}\n" for node in range(1, nodes))
    agent = " ".join([shlex.quote(sys.executable), shlex.quote(os.path.abspath(__file__)), "--agent"])
    options = ["--hostfile", hosts.name, "--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1"]
    names = ("MASTER_ADDR", "MASTER_PORT")
    exported = [argument for name in names for argument in ("-x", name)]
    try:
        return subprocess.call(["mpirun", *options, *exported, "-np", str(nodes * slots), *program])
    finally:
        members.dismiss()
        server.close()
        os.unlink(hosts.name)


def connect():
    until = time.monotonic() + CONNECT_SECONDS_MAX
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def follow():
    """The other tasks: run the received commands, one after another, until rank 0 closes the connection."""
    with connect() as master:
        lines = master.makefile()
        send(master, member=int(os.environ["NODE_RANK"]))
        code = 0
        while message := receive(lines):
            code = subprocess.call(["sh", "-c", message["command"]])
            send(master, code=code)
        return code


def stand_in_for_ssh(arguments):
    """Replacement for `ssh HOST COMMAND...` in mpirun."""
    host, command = arguments[0], " ".join(arguments[1:])
    with connect() as master:
        send(master, node=int(host.removeprefix(NODE)), command=command)
        ended = receive(master.makefile())
        return ended["code"] if ended else 255


def main():
    arguments = sys.argv[1:]
    if arguments[0] == "--agent":
        return stand_in_for_ssh(arguments[1:])
    return lead(arguments) if os.environ["RANK"] == "0" else follow()


if __name__ == "__main__":
    sys.exit(main())
