# Sourced by the install-* scripts: Debian's and Ubuntu's packages, installed without starting their services.
# The script sets: me (its name), part (what is being installed, in words).

PATH="$PATH:/usr/sbin:/sbin"
export PATH

refuse() {
    printf '%s: %s\n' "$me" "$1" >&2
    exit 3
}

log=$(mktemp)
blocker=/usr/sbin/policy-rc.d
made_blocker=no
tidy() {
    rm -f "$log"
    if [ "$made_blocker" = yes ]; then rm -f "$blocker"; fi
}
trap tidy EXIT
trap 'exit 130' INT TERM

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold "$@" >"$log" 2>&1
}

reason() {
    grep -E '^(E:|W: Fail)' "$log" | head -n 1 || tail -n 1 "$log"
}

# Root and apt, or a sentence; then the package lists.
prepare() {
    [ "$(id -u)" -eq 0 ] || refuse "$part needs root to install its packages; run this as root"
    command -v apt-get >/dev/null 2>&1 || refuse "no apt-get here; $part needs Debian 12+ or Ubuntu 22.04+"
    # Packages start their services where there is an init system; exit code 101 of this hook tells them not to.
    if [ ! -e "$blocker" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$blocker"
        chmod 755 "$blocker"
        made_blocker=yes
    fi
    apt update || refuse "apt-get update failed: $(reason)"
}

install() {
    apt install --no-install-recommends "$@" || refuse "apt-get could not install $*: $(reason)"
}
