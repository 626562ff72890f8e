//! Where a database may lie: on a disk of this host.

use std::path::Path;

use rustix::fs::{FsWord, statfs};

use crate::error::{Error, Kind, Result};

/// File systems that more than one host may have mounted, or that a program serves. Pipes and locks on them
/// say nothing about other hosts, and `SQLite` damages its database there. From statfs(2).
const ELSEWHERE: [(FsWord, &str); 11] = [
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "kAFS"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
];

/// Refuses a folder that is on none of this host's disks.
pub fn check(path: &Path, folder: &Path) -> Result<()> {
    let place = path.display().to_string();
    let system = statfs(folder).map_err(|error| {
        let reason = format!("can't look at the folder {}: {error}", folder.display());
        Error::new(Kind::Unavailable, place.clone(), reason)
            .hint("make the folder, on a disk of this host")
    })?;
    match elsewhere(system.f_type) {
        None => Ok(()),
        Some(name) => {
            let reason = format!("is on a file system of the kind {name}, where locks lie");
            Err(Error::new(Kind::Invalid, place, reason)
                .hint("for orchestrators on several hosts, take ZooKeeper: zk://HOST:2181/PATH"))
        }
    }
}

fn elsewhere(magic: FsWord) -> Option<&'static str> {
    // Of 32 bits, and the sign is extended where words are longer.
    let magic = magic & 0xffff_ffff;
    let mut all = ELSEWHERE.iter();
    all.find_map(|(known, name)| (*known == magic).then_some(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_and_user_space_file_systems_are_told_apart_from_disks() {
        assert_eq!(elsewhere(0x6969), Some("NFS"));
        assert_eq!(elsewhere(0x6573_5546), Some("FUSE"));
        assert_eq!(elsewhere(0xff53_4d42), Some("CIFS"));
        assert_eq!(elsewhere(0xff53_4d42_u32 as i32 as FsWord), Some("CIFS"));
        // ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS.
        for disk in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
        ] {
            assert_eq!(elsewhere(disk), None);
        }
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = check(Path::new("/no/such/x.db"), Path::new("/no/such")).unwrap_err();
        assert!(error.to_string().contains("/no/such/x.db"), "{error}");
    }
}
