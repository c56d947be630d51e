#!/usr/bin/env python3
"""Runs the blocks of code in the documents as they stand, each in a network, a folder and processes of its own.

    documents.py [--long] [PATTERN...]    all entries of xtask/documents.txt, or those whose first line contains a pattern

xtask/documents.txt says how each is run and what it has to bring about. `--long` runs the slow ones too. FRESHWIRE_TARGET is the
folder with the built commands.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
TABLE = HOME / "xtask/documents.txt"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HOME / "target")).resolve()
BUILT = Path(os.environ.get("FRESHWIRE_TARGET", TARGET / "debug")).resolve()
# What `make neighbours` builds: not every machine has its compiler.
GO2RTC = TARGET / "neighbours/go2rtc"

# Hosts of the documents, all of which are this machine.
HOSTS = "localhost host camera cam viewer receiver platform neighbour studio.lan"
# What a test cannot have, and what it takes instead. A KEY is the one that an earlier command of the block has printed.
INSTEAD = {
    "USER:PASSWORD": "user:password",
    "v4l2src": "videotestsrc is-live=true",
    "autoaudiosrc": "audiotestsrc is-live=true",
}
KEY = re.compile(r"\b[0-9a-f]{64}\b")

PATIENCE = 60
"""Seconds after which a condition counts as failed, and a block that should end as hanging."""

# What the scripts of the table can call.
FUNCTIONS = f"""
# Waits until a command succeeds.
soon() {{
    local try
    for try in $(seq {PATIENCE * 5}); do
        if "$@" >soon.log 2>&1; then return 0; fi
        sleep 0.2
    done
    echo "not within {PATIENCE} s: $*"
    tail -n 5 soon.log
    return 1
}}
# A camera with these streams, and perhaps a password.
camera() {{
    freshwire serve --listen-rtsp :554 --listen-http none --listen-internal none ${{USERS---open}} "${{@/%/=test}}" >camera.log 2>&1 &
    soon grep -q 'rtsp' camera.log
}}
# A film of ten seconds.
film() {{
    ffmpeg -v error -f lavfi -i testsrc2=size=320x180:rate=25:duration=10 -f lavfi -i sine=duration=10 -c:v libx264 -preset ultrafast \\
        -g 25 -pix_fmt yuv420p -b:v 300k -c:a aac talk.mp4
    ffmpeg -v error -i talk.mp4 -an -c copy -f h264 talk.h264
}}
# A platform that takes streams by RTMP as `app`.
platform() {{
    cat >platform.conf <<-END
	load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;
	daemon off; pid platform.pid; error_log platform.log;
	events {{}}
	rtmp {{ server {{ listen 1935; application app {{ live on; }} }} }}
	END
    nginx -p . -c platform.conf -e stderr &
    soon nc -z 127.0.0.1 1935
}}
# Decodes some pictures of a stream.
viewed() {{ timeout 20 ffmpeg -v error -rtsp_transport tcp -i "$1" -an -frames:v 5 -f null -; }}
"""

SENSORS = """#!/bin/sh
# Twenty lines of JSON a second, of five sensors.
n=0
while n=$((n + 1)); do echo "{\\"id\\": $((n % 5)), \\"n\\": $n}"; sleep 0.05; done
"""


def blocks(text):
    """Lists (language, text): a fence may be indented, as in a list."""
    found, language, indent, lines = [], None, 0, []
    for line in text.splitlines():
        content = line.lstrip()
        if content.startswith("```"):
            if language is None:
                language, indent, lines = re.split("[, ]", content[3:])[0], len(line) - len(content), []
            else:
                found.append((language, "\n".join(lines) + "\n"))
                language = None
        elif language is not None:
            lines.append(line[min(indent, len(line) - len(content)) :])
    return found


def entries():
    """Lists (document, beginning, fields) of the table."""
    found = []
    for line in TABLE.read_text().splitlines():
        indent = len(line) - len(line.lstrip())
        if not line.strip() or (indent < 8 and line.lstrip().startswith("#")):
            continue
        if indent == 0:
            document, begin = line.strip().split(": ", 1)
            found.append((document, begin.replace("\\n", "\n"), {}))
        elif indent == 4:
            name, value = line.strip().split(":", 1)
            fields = found[-1][2]
            fields[name] = value.strip()
        else:
            fields[name] += ("\n" if fields[name] else "") + line[8:]
    return found


def commands(text):
    """The commands of a block: lines with those that continue them, without empty ones and comments."""
    lines, whole = [], ""
    for line in text.splitlines():
        whole += line
        if line.endswith("\\") or line.rstrip().endswith("|"):
            whole += "\n"
            continue
        whole = re.sub(r"(^|\s)#\s.*$", "", whole, flags=re.MULTILINE)
        if whole.strip():
            lines.append(whole)
        whole = ""
    return lines


def instead(text):
    for word, other in INSTEAD.items():
        text = text.replace(word, other)
    return text


class Failed(Exception):
    pass


class Run:
    """One block, within its namespaces: this part runs as the first process there."""

    def __init__(self, how, block, fields):
        self.how, self.block, self.fields = how, instead(block), fields
        self.printed = ""

    def bash(self, script, log, wait=True, **environment):
        with open(log, "ab") as output:
            process = subprocess.Popen(
                ["bash", "-c", ". ./functions\n" + script], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=os.environ | environment, start_new_session=True,
            )
        if not wait:
            return process
        try:
            code = process.wait(2 * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failed(f"does not end: {script}") from None
        if code:
            raise Failed(f"ended with {code}: {script}\n{Path(log).read_text(errors='replace')[-3000:]}")
        return process

    def check(self, **environment):
        self.bash("set -e\n" + self.fields["check"], "check.log", **environment)

    def run(self):
        if before := self.fields.get("before"):
            self.bash("set -e\n" + before, "before.log")
        getattr(self, "run_" + self.how)()

    def run_ends(self):
        """To its end, which is a success."""
        self.bash("set -e\n" + self.block, "log")
        self.check()

    def run_lasts(self):
        """It still runs when the check has passed."""
        process = self.bash(self.block, "log", wait=False)
        self.check()
        if process.poll() is not None:
            raise Failed("it has ended:\n" + Path("log").read_text(errors="replace")[-3000:])

    def run_again(self):
        """Until the check passes."""
        give_up = time.monotonic() + PATIENCE
        while True:
            Path("log").unlink(missing_ok=True)
            try:
                self.bash("set -e\n" + self.block, "log")
                return self.check()
            except Failed:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.5)

    def run_each(self):
        """Each command beside the others, in order: the next one begins when the last one listens, has ended or goes on for seconds."""
        for number, command in enumerate(commands(self.block), 1):
            found = KEY.findall(self.printed)
            if re.search(r"\bKEY\b", command) and not found:
                raise Failed(f"no key was printed for: {command}\n{self.printed[-2000:]}")
            command = re.sub(r"\bKEY\b", found[-1] if found else "", command)
            before = listening()
            process = self.bash(command, f"log.{number}", wait=False)
            give_up = time.monotonic() + 5
            while process.poll() is None and listening() <= before and time.monotonic() < give_up:
                time.sleep(0.05)
            # What it prints then.
            time.sleep(0.3)
            self.printed += Path(f"log.{number}").read_text(errors="replace")
        self.check()

    def run_apart(self):
        """Each command alone; the check finds its number in LINE."""
        for number, command in enumerate(commands(self.block), 1):
            process = self.bash(command, f"log.{number}", wait=False)
            self.check(LINE=str(number))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()

    def run_options(self):
        """Only reads the options: it would run for too long."""
        for command in commands(self.block):
            self.bash(command + " --help", "log")

    def run_file(self):
        """The block lies in the file `block`, within what `wrap` says; the check uses it."""
        wrap = self.fields.get("wrap", "@BLOCK@")
        lines = []
        for line in wrap.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + one for one in self.block.splitlines()] if line.strip() == "@BLOCK@" else [line]
        Path("block").write_text("\n".join(lines) + "\n")
        self.check()


def listening():
    """The sockets of this network that wait for others."""
    found = set()
    for name, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == state:
                found.add((name, words[1]))
    return found


def inside(document, begin):
    """Runs one block as the first process of new namespaces."""
    fields = next(fields for *names, fields in entries() if names == [document, begin])
    block = next(text for _, text in blocks((HOME / document).read_text()) if text.startswith(begin))
    for command in ("ip link set lo up", "ip link set lo multicast on", "ip route add 224.0.0.0/4 dev lo", "mount --bind hosts /etc/hosts"):
        subprocess.run(command.split(), check=True)
    how = fields.get("how", "ends")
    try:
        Run(how, block, fields).run()
    except Failed as failed:
        print(failed)
        logs = {path: path.read_text(errors="replace")[-1500:] for path in sorted(Path().glob("*log*"))}
        print("\n".join(f"--- {path}\n{text}" for path, text in logs.items() if text))
        return 1
    return 0


def run(document, begin):
    """One block in namespaces of its own; returns what it printed if it failed."""
    with tempfile.TemporaryDirectory(prefix="freshwire-documents-") as folder:
        work = Path(folder)
        (work / "bin").mkdir()
        (work / "home").mkdir()
        (work / "bin/sensors").write_text(SENSORS)
        (work / "bin/sensors").chmod(0o755)
        (work / "gst").mkdir()
        if library := plugin():
            (work / "gst" / library.name).symlink_to(library)
        (work / "hosts").write_text(f"127.0.0.1 {HOSTS}\n")
        (work / "functions").write_text(FUNCTIONS)
        environment = os.environ | {
            "PATH": f"{work}/bin:{BUILT}:{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": f"{work}/home",
            "REPOSITORY": str(HOME),
            "BUILT": str(BUILT),
            "PYTHON": str(TARGET / "python/venv/bin/python"),
            "GO2RTC": str(GO2RTC),
            "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
            "GST_PLUGIN_PATH": f"{work}/gst",
            "GST_REGISTRY": f"{work}/registry",
            # Players without a screen.
            "SDL_VIDEODRIVER": "dummy",
            "SDL_AUDIODRIVER": "dummy",
            "GST_PLUGIN_FEATURE_RANK": "fakevideosink:MAX,fakeaudiosink:MAX",
            "LD_LIBRARY_PATH": str(BUILT),
        }
        alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if os.geteuid():
            alone += ["--user", "--map-root-user"]
        ended = subprocess.run(
            [*alone, sys.executable, __file__, "--inside", document, begin], cwd=work, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=10 * PATIENCE,
        )
        return ended.stdout if ended.returncode else None


def plugin():
    """The plugin of GStreamer, if it was built: that takes GStreamer's headers."""
    places = (BUILT / "libgstfreshwire.so", BUILT / "deps/libgstfreshwire.so")
    return next((place for place in places if place.exists()), None)


def build(needs):
    """What the chosen blocks use of this repository."""
    if "FRESHWIRE_TARGET" not in os.environ:
        features = os.environ.get("FRESHWIRE_FEATURES")
        chosen = ["--features", features] if features else []
        without = os.environ.get("FRESHWIRE_WITHOUT")
        chosen += ["--exclude", without] if without else []
        what = ["--lib", "--bin=freshwire", "--bin=freshwire-host", "--bin=freshwire-lab", "--example=one_client"]
        command = ["cargo", "build", "--quiet", "--workspace", *chosen, *what]
        subprocess.run(command, cwd=HOME, check=True)
    if "python" in needs:
        subprocess.run(["xtask/python.sh", "--build"], cwd=HOME, check=True)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--inside"]:
        return inside(*arguments[1:])
    is_long = "--long" in arguments
    patterns = [argument for argument in arguments if argument != "--long"]
    chosen = [
        (document, begin, fields)
        for document, begin, fields in entries()
        if "except" not in fields
        and (is_long or "long" not in fields)
        and (not patterns or any(pattern in f"{document}: {begin}" for pattern in patterns))
    ]
    build({need for _, _, fields in chosen for need in fields.get("needs", "").split()})
    failed = skipped = 0
    for document, begin, fields in chosen:
        if "gst" in fields.get("needs", "") and not plugin() and os.environ.get("CI") != "true":
            print(f"skipped          {document}: {begin.splitlines()[0]}: GStreamer's headers are missing")
            skipped += 1
            continue
        if "relays" in fields.get("needs", "") and os.environ.get("FRESHWIRE_WITHOUT") and os.environ.get("CI") != "true":
            print(f"skipped          {document}: {begin.splitlines()[0]}: Rust 1.95 is missing")
            skipped += 1
            continue
        if "go2rtc" in fields.get("needs", "") and not GO2RTC.exists():
            print(f"skipped          {document}: {begin.splitlines()[0]}: go2rtc is missing; `make neighbours` builds it")
            skipped += 1
            continue
        begun = time.monotonic()
        said = run(document, begin)
        print(f"{'ok    ' if said is None else 'FAILED'} {time.monotonic() - begun:5.1f} s  {document}: {begin.splitlines()[0]}", flush=True)
        if said is not None:
            failed += 1
            print("    " + said.replace("\n", "\n    "), flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(chosen) - failed - skipped} passed; {failed} failed; {skipped} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
