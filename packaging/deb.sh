#!/bin/sh
# target/dist/slackwater_VERSION_ARCHITECTURE.deb: the tree of build.sh in /usr, systemd's units, a user, and
# /etc/slackwater. debian/ has what dpkg wants to know and to run.
set -eu
cd "$(dirname "$0")/.."
. packaging/settings.sh
architecture=$(dpkg --print-architecture)
root=target/dist/deb
rm -rf "$root"
mkdir -p "$root/DEBIAN" "$root/usr/lib/systemd/system" "$root/etc/slackwater"
cp -r target/dist/tree/. "$root/usr"

# Units name the place where administrators install; packages have another one.
for unit in deploy/systemd/*.service; do
  sed 's|/usr/local/bin/slackwater|/usr/bin/slackwater|' "$unit" \
    > "$root/usr/lib/systemd/system/$(basename "$unit")"
done
cp packaging/debian/server.env "$root/etc/slackwater/"
doc="$root/usr/share/doc/slackwater"
cp deploy/systemd/README.md "$doc/README.systemd.md"
mv "$doc/LICENSE" "$doc/copyright"
gzip -9n "$doc/LICENSE-THIRD-PARTY" "$doc/sbom.cdx.json"

echo /etc/slackwater/server.env > "$root/DEBIAN/conffiles"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$root/DEBIAN/"
find "$root" -type d -exec chmod 755 {} +
find "$root/usr" "$root/etc" -type f -exec chmod 644 {} +
chmod 755 "$root"/usr/bin/*
chmod 750 "$root/etc/slackwater"
kilobytes=$(du -sk --exclude=DEBIAN "$root" | cut -f 1)
sed -e "s/@VERSION@/$VERSION/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@KILOBYTES@/$kilobytes/" \
  packaging/debian/control.in > "$root/DEBIAN/control"
(cd "$root" && find usr etc -type f -exec md5sum {} + | sort -k 2) > "$root/DEBIAN/md5sums"
SOURCE_DATE_EPOCH=$TIME dpkg-deb --root-owner-group -Zxz --build "$root" target/dist
ls -l target/dist/*.deb
