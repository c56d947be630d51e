#!/usr/bin/env bash
# Builds the packages: `build.sh` all of them, `build.sh STEP...` some. Steps are:
# binaries wheel command library gstreamer python dkms wireshark crates.
# `build.sh --plan [STEP...]` only says what would be done, and how long it takes; `build.sh --steps` lists all steps.
# `build.sh --install [STEP...]` installs first what these steps need.
# The packages are in O, by default target/packages. PROFILE=dev takes a debug build, for tests.
set -euo pipefail
cd "$(dirname "$0")/.."

all_steps=(binaries wheel command library gstreamer python dkms wireshark crates)
if [ "${1:-}" = --steps ]; then
    printf '%s\n' "${all_steps[@]}"
    exit
fi

say() { printf '%s\n' "$*"; }
fail() { printf 'build.sh: %s\n' "$*" >&2; exit 1; }

# Seconds of processor time of each step's first release build. An estimate: twice the 7 minutes of a debug build of all steps
# (docs/lab-notebook/2026-11-28-packages.md), shared out.
declare -A seconds=([binaries]=540 [wheel]=200 [command]=20 [library]=30 [gstreamer]=10 [python]=5 [dkms]=3 [wireshark]=1 [crates]=20)

processors=$(nproc)
# How long some steps take on the processors of this machine, with nothing else to do.
expected() { # step...
    local step sum=0 minutes
    for step in "$@"; do sum=$((sum + seconds[$step])); done
    minutes=$(((sum / processors + 59) / 60))
    if ((minutes <= 1)); then echo "a minute"; else echo "$minutes minutes"; fi
}

mode=
case ${1:-} in --plan | --install)
    mode=$1
    shift
    ;;
esac
steps=("$@")
if ((${#steps[@]} == 0)); then steps=("${all_steps[@]}"); fi
for step in "${steps[@]}"; do
    if [ -z "${seconds[$step]:-}" ]; then fail "no step is called $step: take some of ${all_steps[*]}"; fi
done

profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
out=${O:-$target/packages}
case $out in /*) ;; *) out=$PWD/$out ;; esac
# First of all, while things are missing that xtask/install.sh installs.
say "packages of Freshwire in $out, with the profile $profile: ${steps[*]}"
say "a first build takes about $(expected "${steps[@]}") on $processors idle processors, and longer beside other work (load now: $(cut -d ' ' -f 1 /proc/loadavg))"
if [ "$mode" = --plan ]; then exit; fi
if [ "$mode" = --install ]; then xtask/install.sh packages "${steps[@]}"; fi
built=$target/debug
# The builder's folders are not in the packages, although panic messages name sources. Elsewhere than other builds,
# because Cargo would overwrite each with the other's flags.
if [ "$profile" != dev ]; then
    export CARGO_TARGET_DIR=$target/packages-build
    built=$CARGO_TARGET_DIR/$profile
    read -ra flags <<<"${RUSTFLAGS:-}"
    # The last one that fits counts.
    flags+=("--remap-path-prefix=$PWD=/freshwire" "--remap-path-prefix=$CARGO_TARGET_DIR=/freshwire/target"
        "--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/crates")
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && printf '%s' "${flags[*]}")
    export CARGO_ENCODED_RUSTFLAGS
fi
# The same commit makes the same packages.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
export SOURCE_DATE_EPOCH

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
deb_version=$version-1
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
debian=packaging/debian
maintainer="Freshwire developers <freshwire@users.noreply.github.com>"
homepage=$(sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml)

# An empty folder for a package's files.
fresh() {
    rm -rf "$out/stage/$1"
    mkdir -p "$out/stage/$1"
    printf '%s\n' "$out/stage/$1"
}

# The documents that each package of Debian has.
add_documents() { # package folder
    local folder=$2/usr/share/doc/$1 date
    date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
    install -D -m 644 "$debian/${3:-copyright}" "$folder/copyright"
    printf 'freshwire (%s) unstable; urgency=medium\n\n  * Upstream %s: see CHANGELOG.md in the repository.\n\n -- %s  %s\n' \
        "$deb_version" "$version" "$maintainer" "$date" | gzip -9n >"$folder/changelog.Debian.gz"
    gzip -9n <CHANGELOG.md >"$folder/changelog.gz"
    chmod 644 "$folder"/*
}

# What the libraries in a folder need, in the words of dpkg.
libraries_of() { # folder file...
    local folder=$1 work
    shift
    work=$(mktemp -d)
    mkdir -p "$work/debian"
    printf 'Source: freshwire\n\nPackage: freshwire\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O --ignore-missing-info "-l$folder/usr/lib/$multiarch" "$@") |
        sed -n 's/^shlibs:Depends=//p' | grep .
    rm -rf "$work"
}

# Makes a package from a folder and a template of its control file.
make_deb() { # package folder architecture substitution...
    local package=$1 folder=$2 architecture=$3 size
    shift 3
    mkdir -p "$folder/DEBIAN"
    size=$(du -sk --apparent-size --exclude=DEBIAN "$folder" | cut -f 1)
    {
        printf 'Package: %s\nSource: freshwire\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nHomepage: %s\nInstalled-Size: %s\n' \
            "$package" "$deb_version" "$architecture" "$maintainer" "$homepage" "$size"
        sed -e "s|@VERSION@|$deb_version|g" "$@" "$debian/$package.control"
    } >"$folder/DEBIAN/control"
    (cd "$folder" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) >"$folder/DEBIAN/md5sums"
    find "$folder" -type d -exec chmod 755 {} +
    find "$folder" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$folder" "$out/${package}_${deb_version}_$architecture.deb" >/dev/null
    say "$out/${package}_${deb_version}_$architecture.deb"
}

# In one call, so that the crates that they share are compiled once. Builds what the other steps need, alone all.
step_binaries() {
    local -A crates=([command]=freshwire-cli [library]=freshwire-c [gstreamer]=freshwire-gst)
    local step needed=() arguments=()
    for step in "${steps[@]}"; do
        if [ -n "${crates[$step]:-}" ]; then needed+=("$step"); fi
    done
    if ((${#needed[@]} == 0)); then needed=("${!crates[@]}"); fi
    for step in "${needed[@]}"; do
        arguments+=(--package "${crates[$step]}")
        if [ "$step" = command ]; then arguments+=(--package freshwire-host); fi
        if [ "$step" = gstreamer ]; then
            # The build script of the bindings says which package is missing, late and at length.
            pkg-config --print-errors --exists "gstreamer-1.0 >= 1.22" "gstreamer-base-1.0 >= 1.22"
            arguments+=(--features freshwire-gst/plugin)
        fi
    done
    cargo build --locked --profile "$profile" "${arguments[@]}"
}

step_wheel() {
    local maturin=$target/python/venv/bin/maturin
    # Without the environment of the Python tests, one for maturin alone.
    if [ ! -x "$maturin" ]; then
        maturin=$target/maturin/bin/maturin
        if [ ! -x "$maturin" ]; then
            python3 -m venv "$target/maturin"
            sed -n '/^maturin==/,/[^\\]$/p' bindings/python/tests/requirements.txt >"$target/maturin/requirements.txt"
            "$target/maturin/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
                --requirement "$target/maturin/requirements.txt"
        fi
    fi
    rm -f "$out"/freshwire-*.whl
    # Cargo's progress; the profile was named once.
    "$maturin" build --locked --profile "$profile" --manifest-path bindings/python/Cargo.toml --out "$out" 2>&1 |
        sed -u '/Finished .* profile/d'
    say "$out"/freshwire-*.whl
}

# The command and the server. cargo-deb has the parts of the scripts that start and stop a service.
step_command() {
    local stage
    command -v cargo-deb >/dev/null || fail "cargo-deb is missing: cargo install cargo-deb"
    stage=${CARGO_TARGET_DIR:-$target}/release/freshwire-deb
    rm -rf "$stage"
    mkdir -p "$stage"
    local name
    for name in freshwire freshwire-host; do
        install -m 755 "$built/$name" "$stage/$name"
        strip --strip-unneeded --remove-section=.comment --remove-section=.note "$stage/$name"
        "$built/$name" generate "$stage" 2>/dev/null
    done
    gzip -9n "$stage"/man/man1/*.1
    add_documents freshwire "$stage"
    cargo deb --quiet --no-build --no-strip --package freshwire-cli --maintainer "$maintainer" --output "$out/freshwire_${deb_version}_$arch.deb"
}

# By hand: cargo-deb makes neither a `shlibs` file nor packages for all architectures.
step_library() {
    local all runtime dev library
    all=$(fresh c)
    make --silent -C bindings/c install ARCHIVE="$built/libfreshwire_c.a" O="$out/stage/c-built" \
        DESTDIR="$all" PREFIX=/usr LIBDIR="/usr/lib/$multiarch"
    library=usr/lib/$multiarch

    runtime=$(fresh libfreshwire1)
    install -D -m 644 "$all/$library/libfreshwire.so.1" "$runtime/$library/libfreshwire.so.1"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$runtime/$library/libfreshwire.so.1"
    add_documents libfreshwire1 "$runtime"
    mkdir -p "$runtime/DEBIAN"
    say "libfreshwire 1 libfreshwire1 (>= $version)" >"$runtime/DEBIAN/shlibs"
    say "activate-noawait ldconfig" >"$runtime/DEBIAN/triggers"
    # Apart, so that a failure ends the script.
    local libraries
    libraries=$(libraries_of "$runtime" "$runtime/$library/libfreshwire.so.1")
    make_deb libfreshwire1 "$runtime" "$arch" -e "s|@LIBRARIES@|$libraries|"

    dev=$(fresh libfreshwire-dev)
    mkdir -p "$dev/$library"
    cp -a "$all/$library/libfreshwire.so" "$all/$library/libfreshwire.a" "$all/$library/pkgconfig" "$all/$library/cmake" "$dev/$library/"
    strip --strip-debug "$dev/$library/libfreshwire.a"
    cp -a "$all/usr/include" "$dev/usr/"
    install -D -m 644 bindings/c/examples/positions.c "$dev/usr/share/doc/libfreshwire-dev/examples/positions.c"
    install -D -m 644 docs/c.md "$dev/usr/share/doc/libfreshwire-dev/manual.md"
    add_documents libfreshwire-dev "$dev"
    make_deb libfreshwire-dev "$dev" "$arch"
}

# The elements where GStreamer looks for them.
step_gstreamer() {
    local stage plugin libraries
    stage=$(fresh gstreamer1.0-freshwire)
    plugin=$stage/usr/lib/$multiarch/gstreamer-1.0/libgstfreshwire.so
    install -D -m 644 "$built/libgstfreshwire.so" "$plugin"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$plugin"
    install -D -m 644 docs/gstreamer.md "$stage/usr/share/doc/gstreamer1.0-freshwire/manual.md"
    add_documents gstreamer1.0-freshwire "$stage"
    libraries=$(libraries_of "$stage" "$plugin")
    # The functions that it calls are older, but GStreamer refuses a plugin made for a newer one.
    libraries=$(sed -E 's/(libgstreamer1.0-0[a-z0-9]*) \(>= [^)]*\)/\1 (>= 1.22)/' <<<"$libraries")
    grep -q 'libgstreamer1.0-0[a-z0-9]* (>= 1.22)' <<<"$libraries" || fail "the plugin does not depend on libgstreamer1.0-0: $libraries"
    make_deb gstreamer1.0-freshwire "$stage" "$arch" -e "s|@LIBRARIES@|$libraries|"
}

# The wheel's content where Debian's Python looks: one package for every version of it, by the stable ABI.
step_python() {
    local stage wheel place
    wheel=$(ls "$out"/freshwire-"$version"-*.whl 2>/dev/null) || step_wheel
    wheel=$(ls "$out"/freshwire-"$version"-*.whl)
    stage=$(fresh python3-freshwire)
    place=$stage/usr/lib/python3/dist-packages
    mkdir -p "$place"
    python3 -m zipfile -e "$wheel" "$place"
    # pip's own list of files; dpkg has that.
    rm -rf "$place"/*.dist-info/RECORD "$place"/*.dist-info/sboms "$place"/*.dist-info/licenses
    find "$place" -type f -exec chmod 644 {} +
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$place"/freshwire/_native.abi3.so
    install -D -m 644 docs/python.md "$stage/usr/share/doc/python3-freshwire/manual.md"
    add_documents python3-freshwire "$stage"
    mkdir -p "$stage/DEBIAN"
    install -m 755 "$debian/python3-freshwire.postinst" "$stage/DEBIAN/postinst"
    install -m 755 "$debian/python3-freshwire.prerm" "$stage/DEBIAN/prerm"
    local libraries
    libraries=$(libraries_of "$stage" "$place/freshwire/_native.abi3.so")
    make_deb python3-freshwire "$stage" "$arch" -e "s|@LIBRARIES@|$libraries|"
}

# The sources of the kernel modules, which dkms builds for each kernel of the machine.
step_dkms() {
    local module package stage source script
    for module in tcp_ldc pkt_push; do
        package=${module//_/-}-dkms
        stage=$(fresh "$package")
        source=$stage/usr/src/$module-$version
        mkdir -p "$source" "$stage/DEBIAN"
        (cd "host/kernel/$module" && git -c safe.directory='*' ls-files | grep -v '^tests/' | xargs cp --parents -t "$source")
        sed -i "s/^PACKAGE_VERSION=.*/PACKAGE_VERSION=\"$version\"/" "$source/dkms.conf"
        if [ -e "$source/$module.7" ]; then
            mkdir -p "$stage/usr/share/man/man7"
            gzip -9n <"$source/$module.7" >"$stage/usr/share/man/man7/$module.7.gz"
        fi
        find "$source" -type f -exec chmod 644 {} +
        add_documents "$package" "$stage" copyright.kernel
        for script in postinst prerm; do
            sed -e "s|@MODULE@|$module|g" -e "s|@PACKAGE@|$package|g" -e "s|@UPSTREAM@|$version|g" \
                "$debian/dkms.$script" >"$stage/DEBIAN/$script"
            chmod 755 "$stage/DEBIAN/$script"
        done
        make_deb "$package" "$stage" all
    done
}

step_wireshark() {
    local stage plugins
    stage=$(fresh freshwire-wireshark)
    plugins=$stage/usr/lib/$multiarch/wireshark/plugins
    mkdir -p "$plugins"
    install -m 644 packaging/wireshark/*.lua "$plugins/"
    install -D -m 644 packaging/wireshark/README.md "$stage/usr/share/doc/freshwire-wireshark/README.md"
    add_documents freshwire-wireshark "$stage"
    make_deb freshwire-wireshark "$stage" "$arch"
}

# Everything that `cargo publish` checks, up to the upload; without VERIFY=1 the crates are not compiled.
step_crates() {
    local verify=--no-verify
    if [ "${VERIFY:-}" = 1 ]; then verify=; fi
    # shellcheck disable=SC2086
    cargo publish --dry-run --workspace --locked --allow-dirty $verify
}

took() { # seconds
    if (($1 < 60)); then echo "$1 s"; else echo "$(($1 / 60)) min $(($1 % 60)) s"; fi
}

mkdir -p "$out"
number=0
for step in "${steps[@]}"; do
    number=$((number + 1))
    say "[$number/${#steps[@]}] $step"
    SECONDS=0
    "step_$step"
    say "[$number/${#steps[@]}] $step: $(took $SECONDS)"
done
say "the packages are in $out"
