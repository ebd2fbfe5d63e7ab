# What a script with a network must not reach by it, one line each: its name, "stopped" or "THROUGH",
# and what was met. Filled in by the test.
import errno, os, socket, urllib.error, urllib.request

UP, OTHER, SPOOL, TIER = "{up}", "{other}", "{spool}", "{tier}"
VICTIM = "{victim}"
LOCAL = "{local}"
FASTOPEN, FASTOPEN_CONNECT, MPTCP = 0x20000000, 30, 262
METADATA = "169.254.169.254"
contained = TIER == "Landlock"
proxy = os.environ["http_proxy"]
where = proxy.rpartition("@")[2].replace("http://", "")
HERE = (where.split(":")[0], int(where.split(":")[1]))


def attack(name):
    def run(work):
        try:
            got = work()
        except urllib.error.HTTPError as met:
            print(name, "| stopped |", met.code, met.reason)
        except OSError as met:
            known = errno.errorcode.get(met.errno)
            print(name, "| stopped |", known or str(getattr(met, "reason", met)).replace("|", "/"))
        except Exception as met:
            print(name, "| stopped |", type(met).__name__)
        else:
            print(name, "| THROUGH |", repr(got)[:80])

    return run


def get(url, using=proxy, headers={}):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": using, "https": using}))
    return opener.open(urllib.request.Request(url, headers=headers), timeout=20).read()


def connect(host, port, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as line:
        line.settimeout(3)
        line.connect((host, port))


def raw(text):
    """What the way out says to this, when that is a 200."""
    pass_ = proxy.rpartition("@")[0].replace("http://", "")
    if pass_:
        import base64

        mark = base64.b64encode(pass_.encode()).decode()
        text = text.replace("\r\n\r\n", "\r\nProxy-Authorization: Basic " + mark + "\r\n\r\n", 1)
    with socket.create_connection(HERE, 20) as line:
        line.settimeout(20)
        line.sendall(text.encode())
        got = line.recv(4096)
        first = got.split(b"\r\n")[0].decode()
        if " 200 " not in first + " ":
            # The connection may well go on.
            raise ConnectionRefusedError(first)
        while piece := line.recv(4096):
            got += piece
    return got


def host(name):
    return name.rpartition(":")[0], int(name.rpartition(":")[2])


# First what is allowed: what is stopped below means nothing else.
body = get("http://" + UP + "/")
print("allowed" if body.decode() == UP else "NOT ALLOWED", body)

# By hand, past the way out.
attack("the allowed host by hand")(lambda: connect(*host(UP)))
attack("another service by hand")(lambda: connect(*host(OTHER)))
attack("a public address by hand")(lambda: connect("1.1.1.1", 80))
attack("metadata by hand")(lambda: connect("169.254.169.254", 80))
attack("an IPv6 address by hand")(lambda: connect("2606:4700:4700::1111", 443, socket.AF_INET6))
attack("a name looked up")(lambda: socket.getaddrinfo("example.com", 80))
attack("DNS by UDP")(lambda: connect("8.8.8.8", 53, kind=socket.SOCK_DGRAM))
attack("DNS by UDP to this host")(lambda: connect("127.0.0.53", 53, kind=socket.SOCK_DGRAM))
attack("DNS by TCP")(lambda: connect("8.8.8.8", 53))
attack("an abstract socket")(lambda: socket.socket(socket.AF_UNIX).connect("\0" + LOCAL))
attack("the socket of the egress process")(
    lambda: socket.socket(socket.AF_UNIX).connect(SPOOL + "/egress/ctl")
)
attack("the log of the egress process")(lambda: open(SPOOL + "/egress/log").read())
attack("what its shim was told")(lambda: os.listdir(SPOOL + "/e"))
attack("streams that Landlock does not know")(
    lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP)
)


@attack("data before a connection")
def _():
    with socket.socket() as line:
        return line.sendto(b"x", FASTOPEN, host(OTHER))


@attack("a connection that is put off")
def _():
    with socket.socket() as line:
        line.settimeout(3)
        line.setsockopt(socket.IPPROTO_TCP, FASTOPEN_CONNECT, 1)
        line.connect(host(OTHER))
        line.send(b"x")
        return line.getpeername()


# By the way out.
attack("a host that was not named")(lambda: get("http://" + OTHER + "/"))
attack("a public host that was not named")(lambda: get("http://example.com/"))
attack("another port of the named one")(lambda: get("http://" + host(UP)[0] + ":1/"))
attack("an address as a number")(lambda: get("http://2130706433:%d/" % host(OTHER)[1]))
attack("an address in hexadecimal")(lambda: get("http://0x7f000001:%d/" % host(OTHER)[1]))
attack("an address of IPv4 in IPv6")(lambda: get("http://" + "[::ffff:127.0.0.1]:%d/" % host(OTHER)[1]))
attack("a named host that is this machine")(lambda: get("http://localhost:%d/" % host(OTHER)[1]))
attack("a named address of the link")(lambda: get("http://" + METADATA + "/"))
tunnel = "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n"
attack("a tunnel to what was not named")(lambda: raw(tunnel % (OTHER, OTHER)))
local = "localhost:%d" % host(OTHER)[1]
attack("a tunnel to a name that is this machine")(lambda: raw(tunnel % (local, local)))
attack("a tunnel to metadata")(lambda: raw(tunnel % ("169.254.169.254:80", UP)))
attack("a tunnel whose host is another")(lambda: raw(tunnel % (OTHER, UP)))
attack("a request that names no host")(
    lambda: raw("GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % OTHER)
)


@attack("another host in the header")
def _():
    got = raw("GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (UP, OTHER))
    if got.endswith(UP.encode()):
        raise PermissionError(errno.EPERM, "the host that was named is asked")
    return got


# What belongs to others.
@attack("a secret in sight")
def _():
    seen = repr(dict(os.environ))
    for place in [".", "/work", "/tmp", "/etc", "/run"]:
        for root, _, files in os.walk(place):
            for name in files:
                try:
                    seen += open(os.path.join(root, name), errors="replace").read(100000)
                except OSError:
                    pass
    if "a-lent-" + "secret" in seen:
        return "seen"
    raise PermissionError(errno.EPERM, "nowhere")


if contained:
    attack("another script's way out")(lambda: connect(*host(VICTIM.rpartition("@")[2])))
    passed = VICTIM.rpartition("@")[0].replace("http://", "")
    attack("its own way out without a pass")(lambda: get("http://" + UP + "/", "http://" + where))
    attack("its own way out with another's pass")(
        lambda: get("http://" + UP + "/", "http://" + passed + "@" + where)
    )
    attack("a port of its own")(lambda: socket.socket().bind(("127.0.0.1", 0)))
    attack("listening at any port")(lambda: socket.socket().listen())
    attack("another protocol on top")(
        lambda: socket.socket().setsockopt(socket.IPPROTO_TCP, 31, b"tls")
    )
print("end")
