//! The user that the head becomes.

use crate::error::{Error, Result};

/// Users that are tried if none is given.
const USERS: [&str; 2] = ["slackwater-power", "nobody"];

/// A user and its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

/// Finds the user that is given, or the first of those that there are.
pub fn find(given: Option<&str>) -> Result<Option<User>> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    find_in(&passwd, given)
}

fn find_in(passwd: &str, given: Option<&str>) -> Result<Option<User>> {
    let user = |name: &str| {
        let line = passwd
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(User { uid, gid })
    };
    match given {
        None => Ok(USERS.iter().find_map(|name| user(name))),
        Some(name) => match user(name) {
            Some(User { uid: 0, .. }) => Err(Error::usage("--user", format!("'{name}' is root"))
                .hint("name a user without permissions")),
            Some(user) => Ok(Some(user)),
            None => Err(Error::usage("--user", format!("there is no user '{name}'"))
                .hint("useradd --system slackwater-power")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_permissions_is_found() {
        let passwd =
            "root:x:0:0::/:/bin/sh\nodd\nnobody:x:65534:65533::/:/bin/false\npower:x:9:8::/:\n";
        let nobody = User {
            uid: 65_534,
            gid: 65_533,
        };
        assert_eq!(find_in(passwd, None), Ok(Some(nobody)));
        assert_eq!(
            find_in(passwd, Some("power")),
            Ok(Some(User { uid: 9, gid: 8 }))
        );
        assert!(find_in(passwd, Some("root")).is_err());
        assert!(find_in(passwd, Some("odd")).is_err());
        assert_eq!(find_in("", None), Ok(None));
    }
}
