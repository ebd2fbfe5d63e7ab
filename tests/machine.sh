#!/usr/bin/env bash
# tests/machine.sh: runs the tests of the sandbox in a virtual machine with Debian's systemd and kernel,
# and so with the second version of control groups, given as contrib/dogwatch.service has it: as its
# user behind its fences, and as root. Before that it starts that very unit and asks `dogwatch doctor`,
# and loads contrib/apparmor/dogwatch. Ends with 1 where one of that fails.
#
#   tests/machine.sh                      control groups, attacks, limits, lives, the network
#   tests/machine.sh sandbox::groups      only these
#   KERNEL=vmlinuz tests/machine.sh       another kernel, such as an older one of Debian's
#   ACCEL=kvm tests/machine.sh            not emulated, where that works
#
# Needs Debian, root and its archive. Emulated, all of it takes about a quarter of an hour and the
# control groups alone three minutes. What is downloaded stays in target/machine.
set -euo pipefail

cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
tests=("$@")
# Not `survival`: with two hundred scripts at once an emulated processor is at it for hours.
((${#tests[@]})) || tests=(sandbox::{groups,attacks,limits,life,network})
# The first of Debian's whose systemd knows `DelegateSubgroup=`.
suite=trixie
place="$PWD/target/machine/$suite"
root="$place/root"
log="$place/log"

need=()
for package in binutils qemu-system-x86 debootstrap cpio; do
  dpkg --status "$package" >/dev/null 2>&1 || need+=("$package")
done
if ((${#need[@]})); then apt-get install -qq --no-install-recommends "${need[@]}" >/dev/null; fi

if [[ ! -e "$place/vmlinuz" ]]; then
  rm -rf -- "$place"
  mkdir -p -- "$place"
  debootstrap --variant=minbase \
    --include=apparmor,dbus,openssl,python3,systemd-sysv "$suite" "$root" >"$log"
  chroot "$root" sh <<'KERNEL'
cd /tmp
name="$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-[0-9]/ {print $2; exit}')"
apt-get download -qq "$name"
KERNEL
  dpkg-deb --extract "$root"/tmp/linux-image-*.deb "$place/kernel"
  rm -rf -- "$root"/tmp/*.deb "$root"/var/{cache,lib}/apt "$root"/usr/share/{doc,locale,man}
  chroot "$root" useradd --system --home-dir /var/lib/dogwatch --uid 1500 dogwatch
  mv -- "$place"/kernel/boot/vmlinuz-* "$place/vmlinuz"
  rm -rf -- "$place/kernel"
fi

binary="$(cargo test --locked --no-run --test it 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p')"
built="$PWD/target/debug"
rm -rf -- "${root:?}/${PWD#/}" "${root:?}/usr/local/bin"
mkdir -p -- "$root$built" "$root/usr/local/bin" "$root/etc/dogwatch"
for file in dogwatch dogwatch-shim; do
  strip -o "$root/usr/local/bin/$file" "$built/$file"
  # Where the tests look for it.
  ln -f -- "$root/usr/local/bin/$file" "$root$built/$file"
done
strip -o "$root/usr/local/bin/it" "$binary"

# What was built may lie there.
ln -sf /dev/null "$root/etc/systemd/system/tmp.mount"
echo 'data_dir = "/var/lib/dogwatch"' >"$root/etc/dogwatch/dogwatch.toml"
install -m 644 contrib/apparmor/dogwatch "$root/etc/apparmor.d/dogwatch"
install -m 644 contrib/dogwatch.service "$root/etc/systemd/system/dogwatch.service"
# A unit like that of the bot, which runs something else to its end.
like() {
  sed -e "s|^ExecStart=.*|ExecStart=$2|" -e 's/^Type=.*/Type=oneshot/' -e '/^Restart/d' \
    -e 's|^\[Service\]|&\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/ttyS0|' \
    -e 's|^\[Service\]|&\nEnvironment=TMPDIR=/var/lib/dogwatch|' \
    contrib/dogwatch.service >"$root/etc/systemd/system/$1.service"
}
like doctor '/usr/local/bin/dogwatch doctor --config /etc/dogwatch/dogwatch.toml'
sed -i 's|^StandardOutput=tty|StandardOutput=truncate:/run/doctor|' "$root/etc/systemd/system/doctor.service"
# The fences stop some attacks before any sandbox does.
like as-user "/usr/local/bin/it --test-threads=1 --skip the_attacks_are_real ${tests[*]}"
like as-root "/usr/local/bin/it --test-threads=1 ${tests[*]}"
# Root has its rights; its scripts are nobody, who may not go where the bot's own things are.
sed -i -e '/^\(User\|Group\|StateDirectory\|UMask\|Environment\)/d' -e '/^NoNewPriv/,/^RestrictSUID/d' \
  "$root/etc/systemd/system/as-root.service"
cat >"$root/etc/systemd/system/machine.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
ExecStart=/bin/sh /machine
UNIT
cat >"$root/machine" <<'GUEST'
ended=0
step() {
  what=$1
  shift
  echo "== $what"
  "$@" || { ended=1; echo "FAILED: $what"; }
}
is_held() {
  pid=$(systemctl show --property=MainPID --value dogwatch.service)
  cat "/proc/$pid/cgroup" "/proc/$pid/attr/current"
  grep -q '/dogwatch.service/bot$' "/proc/$pid/cgroup" && grep -q '^dogwatch ' "/proc/$pid/attr/current"
}
systemctl --version | head -1
uname -r
cat /sys/kernel/security/lsm && echo
step "AppArmor's profile" apparmor_parser -r /etc/apparmor.d/dogwatch
step "the bot's unit" systemctl start dogwatch.service
step "it is held by both" is_held
until [ -s /var/lib/dogwatch/dogwatch.db ]; do sleep 1; done
systemctl stop dogwatch.service
systemctl start doctor.service
cat /run/doctor
step "namespaces are found" grep -q 'sandbox  *namespaces$' /run/doctor
step "control groups are found" grep -q 'control groups (v2) bound the memory' /run/doctor
step "as the unit's user" systemctl start as-user.service
step "as root" systemctl start as-root.service
find /sys/fs/cgroup -name 'dogwatch-*' -type d
echo "the machine ended with $ended"
systemctl poweroff --force --force
GUEST
# A first root cannot be changed for another by pivot_root(2), so it is left for one of the usual kind.
cat >"$root/init" <<'INIT'
#!/bin/sh
mkdir /new
mount -t tmpfs -o size=90%,mode=755 root /new
cp -a $(ls -d /* | grep -v '^/new$') /new/
exec switch_root /new /lib/systemd/systemd
INIT
chmod 755 "$root/init"
(cd -- "$root" && find . -xdev | cpio --quiet --create --format=newc) >"$place/initrd"

qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max -m 4096 -nographic -no-reboot -nic none \
  -kernel "${KERNEL:-$place/vmlinuz}" -initrd "$place/initrd" \
  -append "console=ttyS0 quiet panic=-1 systemd.unit=machine.service systemd.show_status=0" \
  </dev/null | tee "$log"
grep --quiet 'the machine ended with 0' -- "$log"
