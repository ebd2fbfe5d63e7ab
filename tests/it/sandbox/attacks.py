# Each attack prints one line: its name, "stopped" or "THROUGH", and what was met. Filled in by the
# test: where things are that it must not get at.
import ctypes, errno, fcntl, hashlib, mmap, os, platform, resource, signal, socket, sys, time

SECRET, SPOOL, VICTIM, PORT, LOCAL, TIER = {secret!r}, {spool!r}, {victim}, {port}, {local!r}, {tier!r}
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"


def attack(name):
    def run(work):
        try:
            got = work()
        except OSError as met:
            print(name, "| stopped |", errno.errorcode.get(met.errno, met))
        except Exception as met:
            print(name, "| stopped |", type(met).__name__)
        else:
            print(name, "| THROUGH |", repr(got)[:80])

    return run


def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def call(x86, arm, *arguments):
    return checked(libc.syscall(x86 if X86 else arm, *arguments))


def read(path):
    with open(path, "rb") as file:
        return file.read(100)


def write(path):
    with open(path, "wb") as file:
        file.write(b"mine")


def connect(family, kind, address):
    with socket.socket(family, kind) as line:
        line.settimeout(2)
        line.connect(address)


def refused_unless(truth, what):
    if truth:
        raise PermissionError(errno.EPERM, what)
    return what


entry = SPOOL + "/e/" + hashlib.sha256(b"console/main\nw").hexdigest()[:24]

# Files.
attack("the bot's file")(lambda: read(SECRET))
attack("/etc/shadow")(lambda: read("/etc/shadow"))
attack("the spool's list")(lambda: os.listdir(SPOOL + "/e"))
attack("its own exit record, forged")(lambda: write(entry + "/exit.json"))
attack("its own exit record, drafted")(lambda: write(entry + "/exit.tmp"))
attack("its own lock, removed")(lambda: os.unlink(entry + "/lock"))
attack("its own output, read")(lambda: read(entry + "/out"))
attack("its own output, replaced")(lambda: os.symlink("/etc/passwd", entry + "/err"))
# With namespaces the third is a name of its own directory.
shm = "/dev/shm/../x" if TIER == "Namespaces" else "/dev/shm/x"
for place in ("/usr/x", "/etc/x", shm, "/var/tmp/x", "/x", "/dev/x", SPOOL + "/x"):
    attack("write " + place.replace(SPOOL, "SPOOL"))(lambda: write(place))


@attack("a symbolic link to the bot's file")
def _():
    os.symlink(SECRET, "link")
    return read("link")


@attack("a hard link to the bot's file")
def _():
    os.link(SECRET, "hard")
    return read("hard")


@attack("a way up")
def _():
    return read("../" * 20 + SECRET)


@attack("descriptors that were left open")
def _():
    open_ones = []
    for fd in range(3, 1024):
        try:
            os.fstat(fd)
            open_ones.append(fd)
        except OSError:
            pass
    return refused_unless(not open_ones, open_ones)


@attack("stdin")
def _():
    return refused_unless(os.read(0, 10) == b"", "input")


@attack("the bot's environment, inherited")
def _():
    known = {{"PATH", "LANG", "HOME", "TMPDIR", "LC_CTYPE"}}
    return refused_unless(set(os.environ) <= known, set(os.environ) - known)


attack("rights of the bot's file")(lambda: os.chmod(SECRET, 0o777))
attack("owner of the bot's file")(lambda: os.chown(SECRET, -1, os.getgid()))
attack("times of the bot's file")(lambda: os.utime(SECRET))
attack("attributes of the bot's file")(lambda: os.setxattr(SECRET, "user.x", b"1"))
attack("files by handle")(lambda: call(304, 265, -100, b"x", 0))
attack("a file system by mount")(lambda: checked(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
attack("the root, changed")(lambda: os.chroot("/usr"))
attack("rights of an open file")(lambda: os.fchmod(os.open(sys.executable, os.O_RDONLY), 0o777))


@attack("flags of an open file")
def _():
    # As they are, which whoever owns it may set (ioctl_iflags(2)).
    file = os.open(sys.executable, os.O_RDONLY)
    return fcntl.ioctl(file, 0x40086602, fcntl.ioctl(file, 0x80086601, bytes(8)))


attack("directories, watched")(lambda: call(294, 26, 0))
attack("directories, told of")(lambda: fcntl.fcntl(os.open("/usr", os.O_RDONLY), 1026, 1))
attack("memory that stays unmapped")(lambda: mmap.mmap(-1, 4096))
attack("the same by a device")(lambda: mmap.mmap(os.open("/dev/zero", os.O_RDWR), 4096))
attack("memory without a process")(lambda: os.memfd_create("x"))
attack("memory between processes")(lambda: checked(libc.shmget(0, 4096, 0o1600)))

# Processes.
attack("environ of a process")(lambda: read("/proc/%d/environ" % VICTIM))
attack("environ of who started it")(lambda: read("/proc/%d/environ" % os.getppid()))
attack("root of a process")(lambda: os.listdir("/proc/%d/root/" % VICTIM))
attack("all processes")(lambda: os.listdir("/proc"))
attack("a signal for another")(lambda: os.kill(VICTIM, signal.SIGKILL))
attack("a signal for who supervises it")(
    lambda: os.kill(os.getppid(), signal.SIGKILL) if TIER == "Landlock" else os.kill(VICTIM, 9)
)
attack("a signal by descriptor")(lambda: signal.pidfd_send_signal(os.pidfd_open(VICTIM), 9))
attack("ptrace")(lambda: checked(libc.ptrace(16, VICTIM, 0, 0)))
attack("memory of another, read")(lambda: call(310, 270, VICTIM, 0, 0, 0, 0, 0))
attack("a descriptor of another")(lambda: call(438, 438, os.pidfd_open(VICTIM), 0, 0))
attack("limits of another")(lambda: resource.prlimit(VICTIM, resource.RLIMIT_CPU, (1, 1)))
attack("limits of who supervises it")(
    lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))
)
attack("processors of another")(lambda: os.sched_setaffinity(VICTIM, {{0}}))
attack("priority of all")(lambda: os.setpriority(os.PRIO_USER, 0, 19))
attack("a life after its supervisor")(lambda: checked(libc.prctl(1, 0, 0, 0, 0)))
attack("more processes than allowed")(
    lambda: resource.setrlimit(resource.RLIMIT_NPROC, (10000, 10000))
)

attack("a core for the host's handler")(
    lambda: refused_unless(resource.getrlimit(resource.RLIMIT_CORE) == (1, 1), "limit")
)

# The network.
attack("a service on the host's loopback")(
    lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PORT))
)
attack("the cloud's metadata")(
    lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))
)
attack("a name")(lambda: socket.getaddrinfo("example.com", 80))
attack("an abstract socket")(
    lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + LOCAL)
)
attack("its shim's socket")(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, entry + "/ctl"))


@attack("a datagram for a socket with a path")
def _():
    line, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return line.sendto(b"hello", SECRET + ".line")


attack("streams other than TCP")(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attack("UDP")(lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", PORT)))
attack("UDP over IPv6")(lambda: connect(socket.AF_INET6, socket.SOCK_DGRAM, ("::1", PORT)))
attack("raw packets")(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attack("packets of the device")(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attack("netlink")(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
attack("the machine's host")(lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
attack("ciphers of the kernel's")(lambda: socket.socket(38, socket.SOCK_SEQPACKET))

# Namespaces and the kernel.
attack("a user namespace")(lambda: checked(libc.unshare(0x10000000)))
attack("a network namespace")(lambda: checked(libc.unshare(0x40000000)))


def clone(flags):
    # The child of a clone that came through must not go on here.
    pid = call(56, 220, flags | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid


attack("a user namespace by clone")(lambda: clone(0x10000000))
attack("clone3")(lambda: call(435, 435, 0, 0))
attack("io_uring")(lambda: call(425, 425, 8, ctypes.create_string_buffer(256)))
attack("bpf")(lambda: call(321, 280, 0, ctypes.create_string_buffer(128), 72))
attack("perf_event_open")(lambda: call(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0))
attack("userfaultfd")(lambda: call(323, 282, 1))
attack("rules of Landlock's")(lambda: call(444, 444, 0, 0, 1))
attack("a key of the kernel's")(lambda: call(248, 217, b"user", b"k", b"v", 1, -3))
attack("personality")(lambda: call(135, 92, 0x0040000))
attack("the clock")(lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))
attack("the host's name")(lambda: socket.sethostname("mine"))
attack("a module of the kernel's")(lambda: call(175, 105, b"", 0, b""))
attack("another kernel")(lambda: call(246, 104, 0, 0, 0, 0))
attack("a call that is newer than the list")(lambda: call(462, 462, 0, 0, 0))
attack("input for a terminal")(lambda: fcntl.ioctl(1, 0x5412, b"x"))
attack("a signal by a file's owner")(lambda: fcntl.fcntl(0, 8, VICTIM))


@attack("calls of another ABI")
def _():
    pid = os.fork()
    if pid == 0:
        libc.syscall(0x40000000 + 39 if X86 else 462)
        os._exit(0 if X86 else 1)
    _, status = os.waitpid(pid, 0)
    return refused_unless(status != 0, "x32")


# It can still do its work.
a, b = socket.socketpair()
a.send(b"works")
assert b.recv(5) == b"works"
print("end")
