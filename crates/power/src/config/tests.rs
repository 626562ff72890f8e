use std::os::unix::fs::PermissionsExt;

use super::*;

/// The message about a configuration file.
fn wrong(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("power.toml");
    fs::write(&path, text).unwrap();
    let given = Given {
        file: Some(path),
        ..Given::default()
    };
    let error = read(&given)
        .map(|settings| format!("{settings:?}"))
        .unwrap_err();
    assert_eq!(error.code(), 2);
    let text = error.to_string();
    text.replace(folder.path().to_str().unwrap(), "")
        .replace("error: /", "")
}

#[test]
fn a_whole_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "hidden\n").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let path = folder.path().join("power.toml");
    let text = format!(
        r#"
        lag = "20 ms"              # what replicas may be behind
        metrics = "127.0.0.1:9618"
        [[redis]]
        url = "sentinel://10.0.0.1:26379/mymaster"
        user = "power"
        password_file = "{}"
        [[redis]]
        url = "redis://127.0.0.1:6379"
        [cores]
        fast = "0-3"
        slow = "4-7"
        [slow]
        policy = "load"
        floor = "1.2 GHz"
        reads = "fresh"
        read_delay = "50 us"
        settle = "1 s"
        "#,
        secret.display()
    );
    fs::write(&path, text).unwrap();
    let given = Given {
        file: Some(path),
        urls: vec!["redis://127.0.0.1:7000".to_string()],
        lag_ns: Some(5_000_000),
        metrics: None,
    };
    let settings = read(&given).unwrap();
    let expected = Limits {
        lag_ns: Some(5_000_000),
        policy: Policy::Load,
        floor_khz: Some(1_200_000),
        read_delay_ns: Some(50_000),
        settle_ns: 1_000_000_000,
    };
    assert_eq!(settings.limits, expected);
    assert_eq!(settings.lists.slow, (4..8).collect());
    assert_eq!(settings.servers.len(), 3);
    assert!(!settings.batches);
    assert_eq!(settings.metrics, Some("127.0.0.1:9618".parse().unwrap()));
    assert!(settings.warnings[0].contains("can be read by others"));
    let login = settings.servers[1].login.as_ref().unwrap().login().unwrap();
    assert_eq!(
        (login.user.as_deref(), login.password.as_str()),
        (Some("power"), "hidden")
    );
}

#[test]
fn mistakes_name_the_line() {
    for (text, place, what) in [
        ("lagg = \"20 ms\"\n", "power.toml:1", "unknown field `lagg`"),
        (
            "\n[slow]\nfloor = \"1.0 GHs\"\n",
            "power.toml:3",
            "'1.0 GHs' is not a valid frequency",
        ),
        ("lag = 20\n", "power.toml:1", "expected a string"),
        (
            "lag = \"20\"\n",
            "power.toml:1",
            "'20' is not a valid duration",
        ),
        ("lag = \"1 ms\"\n", "power.toml:1", "2 ms are the least"),
        (
            "[cores]\nslow = \"a-b\"\n",
            "power.toml:2",
            "'a' in 'a-b' is not a number",
        ),
        ("[[redis]]\n", "power.toml:1", "does not say where"),
        (
            "[[redis]]\nurl = \"http://x:1\"\n",
            "power.toml:2",
            "'http' is not supported",
        ),
        (
            "[slow]\npolicy = \"lazy\"\n",
            "power.toml:2",
            "unknown variant `lazy`",
        ),
        (
            "metrics = \"0.0.0.0:9618\"\n",
            "power.toml:1",
            "on this host only",
        ),
        ("lag = \"20 ms\n", "power.toml:1", "invalid basic string"),
        (
            "[cores]\nfast = \"0-3\"\nslow = \"3\"\n",
            "power.toml",
            "cores 3 are listed as fast and slow",
        ),
        (
            "\n[[redis]]\nurl = \"redis://h:1\"\nuser = \"x\"\n",
            "power.toml:2",
            "has a user and no password",
        ),
        (
            "[[redis]]\nsentinel = [\"h:1\"]\n",
            "power.toml:1",
            "has sentinel and no name",
        ),
        (
            "[[redis]]\nname = \"m\"\n",
            "power.toml:1",
            "name of a master and no sentinel",
        ),
        (
            "[[redis]]\nname = \"m\"\nsentinel = []\n",
            "power.toml:3",
            "0 Sentinels",
        ),
        (
            "[[redis]]\nname = \"m\"\nsentinel = [\"h:x\"]\n",
            "power.toml:3",
            "'h:x' is not the address of a Sentinel",
        ),
        (
            "[[redis]]\nname = \"m\"\nsentinel = [\"redis://h\"]\n",
            "power.toml:3",
            "write host:port alone",
        ),
        (
            "[[redis]]\nname = \"a b\"\nsentinel = [\"h\"]\n",
            "power.toml:2",
            "'a b' is not a name",
        ),
        (
            "[[redis]]\nurl = \"redis://h\"\nsentinel = [\"h\"]\n",
            "power.toml:1",
            "has url, and sentinel or name",
        ),
        (
            "[[redis]]\nurl = \"redis://h\"\nsentinel_password_file = \"f\"\n",
            "power.toml:1",
            "a login for Sentinel and no Sentinel",
        ),
        (
            "[[redis]]\nurl = \"redis://127.0.0.1\"\npid = 7\nunit = \"a.service\"\n",
            "power.toml:1",
            "more than one of pid, unit and cgroup",
        ),
        (
            "[[redis]]\nurl = \"redis://host\"\npid = 7\n",
            "power.toml:1",
            "names a process, and its url no address",
        ),
        (
            "[[redis]]\nurl = \"redis://127.0.0.1\"\npid = 1\n",
            "power.toml:3",
            "1 is not the process of a server",
        ),
        (
            "[[redis]]\nurl = \"redis://127.0.0.1\"\nunit = \"redis\"\n",
            "power.toml:3",
            "'redis' is not the name of a unit",
        ),
        (
            "[[redis]]\nurl = \"redis://127.0.0.1\"\ncgroup = \"/a/../b\"\n",
            "power.toml:3",
            "is not the path of a control group",
        ),
    ] {
        let message = wrong(text);
        assert!(message.starts_with(place), "{text}: {message}");
        assert!(message.contains(what), "{text}: {message}");
        assert!(message.contains("hint: "), "{text}: {message}");
    }
}

#[test]
fn a_password_is_not_taken_from_the_command_line() {
    let given = Given {
        urls: vec!["redis://power:hidden@127.0.0.1:6379".to_string()],
        ..Given::default()
    };
    let message = read(&given).unwrap_err().to_string();
    assert!(
        message.contains("password") && !message.contains("hidden"),
        "{message}"
    );
    let missing = Secret::of_file("/missing/secret");
    assert!(
        missing
            .login()
            .unwrap_err()
            .to_string()
            .contains("/missing/secret")
    );
}

#[test]
fn sentinels_are_watched_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("power.toml");
    let text = "[[redis]]\nname = \"mymaster\"\nsentinel = [\"10.0.0.1:26379\", \"[::1]\", \"b\"]\n\
                sentinel_password_file = \"/missing\"\n\
                [[redis]]\nurl = \"redis://127.0.0.1:1\"\ncgroup = \"/system.slice/a.scope\"\n";
    fs::write(&path, text).unwrap();
    let given = Given {
        file: Some(path),
        ..Given::default()
    };
    let servers = read(&given).unwrap().servers;
    let shown = servers.iter().map(|server| server.seed.to_string());
    assert_eq!(
        shown.collect::<Vec<String>>(),
        [
            "sentinel://10.0.0.1:26379/mymaster",
            "sentinel://[::1]:26379/mymaster",
            "sentinel://b:26379/mymaster",
            "redis://127.0.0.1:1",
        ]
    );
    assert!(servers[0].login.is_none() && servers[2].sentinel_login.is_some());
    let process = Process::Cgroup("/system.slice/a.scope".to_string());
    assert_eq!(servers[3].process, Some(process));
}
