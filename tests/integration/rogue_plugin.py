"""An untrusted plug-in: tries everything it is told to in the message's ``attack`` and answers what came of it.

Runs inside containers (and once outside, to show that the attacks work where nothing stops them); standard library only.
"""

import ctypes
import json
import os
import socket
import sys
import time

INFO = {"name": "rogue", "version": "1", "quantities": ["startup", "run_time"], "basis": "history", "description": "an attacker"}
CLONE_NEWUSER, CLONE_NEWNS, MNT_DETACH = 0x10000000, 0x00020000, 2


def read_files(paths):
    """What can be read of each path, directly and through every process's root and working directory."""
    found = {}
    roots = [""] + [f"/proc/{p}/{link}" for p in os.listdir("/proc") if p.isdigit() for link in ("root", "cwd")]
    for path in paths:
        for root in roots:
            try:
                with open(root + path, "rb") as file:
                    found[root + path] = file.read(200).decode(errors="replace")
                break
            except OSError:
                continue
    return found


def connect(addresses):
    """Which of the TCP addresses, and which abstract Unix sockets, answer."""
    found = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=3) as link:
                found.append([host, port, link.recv(100).decode()])
        except OSError:
            continue
    return found


def connect_abstract(name):
    """Whether a Unix socket in the abstract name space answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(3)
            link.connect("\0" + name)
            return link.recv(100).decode()
    except OSError:
        return ""


def processes(marker):
    """Command lines of other processes that hold the marker."""
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) not in (os.getpid(), os.getppid()):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    line = file.read()
            except OSError:
                continue
            if marker in line:
                found.append(line)
    return found


def write_files(paths):
    """Which of the paths can be written."""
    found = []
    for path in paths:
        try:
            with open(path, "w") as file:
                file.write("was here")
            found.append(path)
        except OSError:
            continue
    return found


def look_beneath(paths):
    """Gain what a new user namespace gives, take away mounts, and see what lies beneath them."""
    libc = ctypes.CDLL(None, use_errno=True)
    gained = libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0
    removed = [p for p in ("/dev", "/sys", "/tmp", "/proc") if libc.umount2(p.encode(), MNT_DETACH) == 0]
    return {"gained": gained, "removed": removed, "read": read_files(paths) if os.path.isdir("/proc/self") else {}}


def become_root():
    """Whether it is root, or can become it."""
    try:
        os.setuid(0)
        return True
    except OSError:
        return False


def attack(orders):
    """Everything in the orders."""
    return {
        "uid": os.getuid(), "root": become_root() if orders.get("become_root") else None,
        "read": read_files(orders.get("files", [])), "tcp": connect(orders.get("tcp", [])),
        "abstract": connect_abstract(orders["abstract"]) if orders.get("abstract") else "",
        "processes": processes(orders["marker"]) if orders.get("marker") else [],
        "written": write_files(orders.get("write", [])), "environment": dict(os.environ),
        "interfaces": [name for _, name in socket.if_nameindex()], "devices": sorted(os.listdir("/dev")),
        "beneath": look_beneath(orders["files"]) if orders.get("beneath") else None,
    }


def misbehave(how):
    """One way of not answering."""
    if how == "hang":
        time.sleep(3600)
    elif how == "hang deaf":
        import signal

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
        time.sleep(3600)
    elif how == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    elif how == "memory":
        held = []
        while True:
            held.append(bytearray(2**24))
    elif how == "fork":
        for _ in range(2000):
            os.fork()
    elif how == "exit":
        print("\x1b[31mno licence\x1b[0m", file=sys.stderr)
        sys.exit(3)
    elif how == "text":
        print("Segmentation fault (core not dumped)")
    elif how == "deep":
        print("[" * 100000)
    elif how == "empty":
        pass
    return how


def answer(message):
    """Lies and truths, by the workload's name."""
    how = message["workload"].get("name", "")
    figures = {"p10": 1.0, "p50": 2.0, "p90": 3.0, "unit": "s", "source": "rogue@1", "basis": "history", "reason": "a lie"}
    reply = {"contract": "1", "quantity": message["quantity"], "estimate": figures}
    if how == "wrong unit":
        figures["unit"] = "bytes"
    elif how == "wrong version":
        figures["source"] = "rogue@2"
    elif how == "wrong contract":
        reply["contract"] = "2"
    elif how == "wrong quantity":
        reply["quantity"] = "checkpoint"
    elif how == "disorder":
        figures["p10"] = 9.0
    elif how == "not a number":
        figures["p50"] = "2"
    elif how == "infinite":
        figures["p90"] = 1e400
    elif how != "honest":
        misbehave(how)
        return None
    return reply


def main():
    """One message in, at most one out."""
    message = json.loads(sys.stdin.read())
    if message.get("describe"):
        reply = {"contract": "1", "info": INFO}
    elif "attack" in message:
        reply = attack(message["attack"])
    else:
        reply = answer(message)
    if reply is not None:
        print(json.dumps(reply))


if __name__ == "__main__":
    main()
