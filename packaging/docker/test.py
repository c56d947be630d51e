#!/usr/bin/env python3
"""Runs the steps of the Dockerfile without Docker, and then what the image starts.

Each stage is a copy of a clean Debian (the one of packaging/test.sh), in which RUN is a shell and COPY a copy. The image `rust` is that Debian
with this machine's toolchain. As root. PROFILE is the profile of the build, by default dev.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
TARGET = (HOME / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()
BASE = TARGET / "packages-base"
WORK = TARGET / "docker-test"
DOCKERFILE = HOME / "packaging/docker/Dockerfile"
IMAGES = {"rust:1-slim-bookworm", "debian:bookworm-slim"}
ARGUMENTS = {"PROFILE": os.environ.get("PROFILE", "dev"), "FFMPEG": os.environ.get("FFMPEG", "")}


def instructions(text):
    """Lists (instruction, arguments): comments left out, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def run(*command, **more):
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run(command, check=True, **more)


class Stage:
    """One root file system."""

    def __init__(self, image, name):
        if image not in IMAGES:
            sys.exit(f"the image {image} is not known here: add what it consists of")
        self.root = WORK / name
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        self.folder = "/"
        self.user = "root"
        self.entrypoint, self.command = [], []
        run("cp", "-a", BASE, self.root)
        self.mount("/proc", "/proc")
        for path in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(path, self.root / path[1:])
        shutil.copytree("/etc/apt/apt.conf.d", self.root / "etc/apt/apt.conf.d", dirs_exist_ok=True)
        if image.startswith("rust:"):
            self.add_rust()

    def add_rust(self):
        sysroot = subprocess.check_output(["rustc", "--print", "sysroot"], text=True).strip()
        self.mount(sysroot, "/usr/local/rust")
        cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        # Where it is here: Cargo builds a crate anew whose sources are elsewhere.
        self.mount(cargo / "registry", str(cargo / "registry"))
        # A later run builds only what has changed.
        built = WORK.parent / f"docker-target-{ARGUMENTS['PROFILE']}"
        built.mkdir(exist_ok=True)
        self.mount(built, "/src/target")
        self.environment |= {"PATH": "/usr/local/rust/bin:" + self.environment["PATH"], "CARGO_HOME": str(cargo)}
        self.environment |= {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}

    def mount(self, source, at):
        place = self.root / at[1:]
        place.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", source, place)

    def chroot(self, *command, **more):
        inside = ["chroot", f"--userspec={self.user}", str(self.root), "/usr/bin/env", "-i", f"--chdir={self.folder}"]
        return run(*inside, *(f"{name}={value}" for name, value in self.environment.items()), *command, **more)

    def copy(self, words, stages):
        sources = HOME
        if words[0].startswith("--from="):
            sources = stages[words.pop(0).removeprefix("--from=")].root
        *paths, to = words
        to = self.root / (Path(self.folder) / to).relative_to("/")
        for path in paths:
            source = sources / path.lstrip("/")
            if sources == HOME and path == ".":
                copy_context(to)
            elif source.is_dir():
                shutil.copytree(source, to, symlinks=True, dirs_exist_ok=True)
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)


def copy_context(to):
    """Copies the files of the repository that .dockerignore does not name."""
    ignored = [line for line in DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split("\n") if line and line[0] != "#"]
    listed = subprocess.check_output(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=HOME, text=True)
    for name in filter(None, listed.split("\0")):
        if name.split("/")[0] not in ignored and (HOME / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HOME / name, to / name, follow_symlinks=False)


KNOWN = {"FROM", "ARG", "WORKDIR", "RUN", "COPY", "USER", "ENTRYPOINT", "CMD", "EXPOSE"}


def steps():
    """Prints the steps. Fails for one that this test could not carry out, and where a copied file is missing."""
    for instruction, rest in instructions(DOCKERFILE.read_text()):
        assert instruction in KNOWN, f"the instruction {instruction} is not known here"
        assert instruction != "FROM" or rest.split()[0] in IMAGES, f"the image {rest} is not known here"
        if instruction == "COPY" and not rest.startswith("--from="):
            assert all((HOME / path).exists() for path in rest.split()[:-1]), f"COPY {rest}: no such file"
        print("ok", instruction, " ".join(rest.split()))


def build():
    """Carries out the Dockerfile and returns the stages; the last one is the image."""
    stages, stage = {}, None
    for instruction, rest in instructions(DOCKERFILE.read_text()):
        if instruction == "FROM":
            image, *alias = rest.split()
            name = alias[1] if alias else "image"
            stage = stages[name] = Stage(image, name)
        elif instruction == "ARG":
            name, default = rest.split("=", 1)
            stage.environment[name] = ARGUMENTS.get(name, default)
        elif instruction == "WORKDIR":
            (stage.root / rest[1:]).mkdir(parents=True, exist_ok=True)
            stage.folder = rest
        elif instruction == "RUN":
            stage.chroot("/bin/sh", "-ec", rest)
        elif instruction == "COPY":
            stage.copy(rest.split(), stages)
        elif instruction == "USER":
            stage.user = rest
        elif instruction == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        elif instruction == "CMD":
            stage.command = json.loads(rest)
        elif instruction not in KNOWN:
            sys.exit(f"the instruction {instruction} is not known here")
        yield stages


def inside():
    """Everything, in a mount namespace that ends with this process."""
    stages = {}
    for stages in build():
        pass
    image = list(stages.values())[-1]
    shown = image.chroot(*image.entrypoint, "--version", stdout=subprocess.PIPE, text=True).stdout
    print(shown, end="")
    assert re.fullmatch(r"freshwire \d+\.\d+\.\d+\n", shown), shown
    # What the image starts, up to the point where it would listen.
    image.chroot(*image.entrypoint, *image.command, "--check")
    identity = image.chroot("/usr/bin/id", "--user", stdout=subprocess.PIPE, text=True).stdout
    assert int(identity) != 0, "the server runs as root"
    assert not (image.root / "usr/local/rust").exists(), "the image contains the toolchain"
    print("4 passed")


def main():
    if sys.argv[1:] == ["--inside"]:
        return inside()
    if sys.argv[1:] == ["--steps"]:
        return steps()
    if os.geteuid() != 0 or not (BASE / "etc/debian_version").exists():
        sys.exit("run it as root, after packaging/test.sh, which makes the clean root file system")
    # The mounts exist in the child's namespace alone, so that deleting the folder cannot reach what was mounted.
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    alone = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__, "--inside"]
    ended = subprocess.run(alone, check=False)
    shutil.rmtree(WORK, ignore_errors=True)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
