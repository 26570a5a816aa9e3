"""Enters a network of its own, makes the TUN device of a site, hands it to the router, becomes a command.

    python -m lab.site_process SITE SOCKET -- COMMAND ...

The device lives in the namespace, its file descriptor goes to the router over the Unix socket SOCKET: packets
reach other sites through the router alone. Needs root, or user namespaces and a readable /dev/net/tun. Knows
Linux alone.
"""

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000  # <linux/sched.h>
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # <linux/if_tun.h>
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LAB = "TWIN_LAB_PROCESS"
"""Variable with the number of the process of the lab."""
DEVICE = "twin0"
MTU = 9000
"""Jumbo frames: a message of the lab is a few packets, so that the router is not what is measured."""
PACKETS_QUEUED = 4000
KERNEL = {
    "net/ipv4/tcp_slow_start_after_idle": "0",  # a link between data centres carries long-lived flows
    "net/ipv4/tcp_rmem": "65536 4194304 16777216",
    "net/ipv4/tcp_wmem": "65536 4194304 16777216",
}
"""Settings of TCP in the namespace; those that the kernel does not have for namespaces keep their values."""


def address(site: int) -> str:
    """Address of a site in the lab's own network."""
    return f"10.77.0.{site + 1}"


def unshare() -> None:
    """Moves this process into a network namespace of its own, with a user namespace where it is not root.

    Raises:
        OSError: the kernel allows neither.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    root = os.geteuid() == 0
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNET if root else CLONE_NEWNET | CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")
    if not root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def end_with_parent() -> None:
    """Lets the kernel end this process with the one that started it, and now if the lab has ended already.

    A lab that is killed cannot end its processes, and their namespaces would stay as long as they do.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    command = int(os.environ.get(LAB, 0))
    if command and not Path(f"/proc/{command}").exists():  # before the kernel was asked
        sys.exit(1)


def open_device() -> int:
    """File descriptor of a new TUN device in the present namespace."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return device


def configure(site: int) -> None:
    """Gives the device its address and brings it and loopback up."""
    for line in (
        f"link set {DEVICE} mtu {MTU} txqueuelen {PACKETS_QUEUED}",
        f"addr add {address(site)}/24 dev {DEVICE}",
        f"link set {DEVICE} up",
        "link set lo up",
    ):
        subprocess.run(["ip", *line.split()], check=True)
    for name, value in KERNEL.items():
        setting = Path("/proc/sys") / name
        if os.access(setting, os.W_OK):
            setting.write_text(value)


def main(arguments: list[str]) -> None:
    """Becomes the command, inside the namespace of the site."""
    site, channel, command = int(arguments[0]), arguments[1], arguments[3:]
    end_with_parent()
    unshare()
    device = open_device()
    configure(site)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as router:
        router.connect(channel)
        socket.send_fds(router, [site.to_bytes(1, "big")], [device])
        router.recv(1)  # the router has it
    os.close(device)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
