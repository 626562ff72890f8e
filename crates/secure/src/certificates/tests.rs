//! Files of certificates, and who is let in with them.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use crate::connection::Connection;
use crate::keys::{Keys, Purpose};
use crate::secret::Secret;

/// An authority, which signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    Authority {
        issuer: Issuer::new(params, key),
        pem,
    }
}

impl Authority {
    /// A host's certificate and key.
    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let mut params = CertificateParams::new(vec!["h2".to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A host's file.
    fn host(&self) -> Secret {
        let (certificate, key) = self.sign(|_| {});
        Secret::parse(&(certificate + &key + &self.pem)).unwrap()
    }
}

/// What each end says of a handshake: nothing, if it is over.
fn shake(connecting: &Secret, accepting: &Secret, purposes: [Purpose; 2]) -> [Option<String>; 2] {
    let mut ends = [
        Connection::connecting(&Keys::new(connecting, purposes[0])).unwrap(),
        Connection::accepting(&Keys::new(accepting, purposes[1])).unwrap(),
    ];
    let mut said = [None, None];
    // Three flights of a handshake, and an alert in each direction.
    for _ in 0..4 {
        for (from, to) in [(0, 1), (1, 0)] {
            let mut sent = Vec::new();
            ends[from].pay(&mut sent).unwrap();
            let mut rest = &sent[..];
            while !rest.is_empty() && ends[to].take(&mut rest).is_ok() {
                let shaken = ends[to].open(&mut [0]).err();
                said[to] = said[to].take().or(shaken.map(|error| error.to_string()));
            }
        }
    }
    said
}

const SAME: [Purpose; 2] = [Purpose::Data, Purpose::Data];

#[test]
fn hosts_with_certificates_of_one_authority_are_let_in() {
    let authority = authority("ours");
    let hosts = [authority.host(), authority.host()];
    for purpose in [Purpose::Control, Purpose::Data] {
        assert_eq!(shake(&hosts[0], &hosts[1], [purpose; 2]), [None, None]);
    }
    // What a worker process is told is the same secret.
    let told = Secret::parse(&hosts[0].text()).unwrap();
    assert_eq!(shake(&told, &hosts[1], SAME), [None, None]);
}

#[test]
fn an_authority_between_is_a_part_of_the_chain() {
    let authority = authority("ours");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.signed_by(&key, &authority.issuer).unwrap().pem();
    let between = Authority {
        issuer: Issuer::new(params, key),
        pem,
    };
    let (certificate, key) = between.sign(|_| {});
    let file = certificate + &between.pem + &key + &authority.pem;
    let host = Secret::parse(&file).unwrap();
    assert_eq!(shake(&host, &authority.host(), SAME), [None, None]);
    assert_eq!(shake(&authority.host(), &host, SAME), [None, None]);
}

#[test]
fn strangers_are_refused_and_told_apart() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let [connecting, accepting] = shake(&theirs.host(), &ours.host(), SAME);
    assert_eq!(
        connecting.as_deref(),
        Some("has a certificate that was not signed by an authority of the file")
    );
    assert!(accepting.unwrap().contains("another authority"));
    // The other direction, where only the accepting side objects.
    let (certificate, key) = theirs.sign(|_| {});
    let both = Secret::parse(&(certificate + &key + &theirs.pem + &ours.pem)).unwrap();
    let [_, accepting] = shake(&both, &ours.host(), SAME);
    assert!(
        accepting
            .unwrap()
            .contains("was not signed by an authority")
    );

    let [connecting, accepting] = shake(
        &ours.host(),
        &ours.host(),
        [Purpose::Data, Purpose::Control],
    );
    assert_eq!(connecting.as_deref(), Some("has another purpose"));
    assert_eq!(accepting.as_deref(), Some("has another purpose"));

    let key = Secret::generate().unwrap();
    for said in [
        shake(&key, &ours.host(), SAME),
        shake(&ours.host(), &key, SAME),
    ] {
        assert!(
            said.iter()
                .flatten()
                .any(|said| said.contains("certificates where this host has a key")),
            "{said:?}"
        );
    }
}

/// What is wrong with a file.
fn wrong(text: &str) -> String {
    Secret::parse(text).expect_err("a file that is refused")
}

#[test]
fn files_that_let_nobody_in_are_refused_with_the_reason() {
    let (ours, theirs) = (authority("ours"), authority("theirs"));
    let (certificate, key) = ours.sign(|_| {});
    let (_, other_key) = ours.sign(|_| {});
    let of = |change: fn(&mut CertificateParams)| {
        let (certificate, key) = ours.sign(change);
        certificate + &key + &ours.pem
    };
    let cases = [
        (
            key.clone() + &ours.pem,
            "holds no certificate before the private key",
        ),
        (certificate.clone() + &ours.pem, "holds no private key"),
        (
            certificate.clone() + &key,
            "holds no certificate of an authority",
        ),
        (
            certificate.clone() + &other_key + &ours.pem,
            "is not that of the first certificate",
        ),
        (
            certificate.clone() + &key + &key + &ours.pem,
            ": a second private key",
        ),
        (
            certificate.clone() + &key + &theirs.pem,
            "was not signed by an authority of the file",
        ),
        (
            certificate.replace("\nMII", "\n!!!") + &key + &ours.pem,
            ":1: not a section of the PEM format",
        ),
        (
            of(|params| params.not_after = date_time_ymd(2001, 1, 1)),
            "certificate has expired",
        ),
        (
            of(|params| params.not_before = date_time_ymd(2999, 1, 1)),
            "is not valid yet",
        ),
        (
            of(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
            "serverAuth and clientAuth",
        ),
        (
            "-----BEGIN ".to_owned(),
            ":1: not a section of the PEM format",
        ),
    ];
    for (text, expected) in cases {
        let message = wrong(&text);
        assert!(message.contains(expected), "{message}: {expected}");
        assert!(!message.contains("PRIVATE KEY-----"), "{message}");
    }
    let second = certificate + &key + &key;
    let line = second
        .rfind("-----BEGIN")
        .map(|at| second[..at].lines().count() + 1);
    assert!(wrong(&second).starts_with(&format!(":{}: ", line.unwrap())));
}

#[test]
fn a_file_of_certificates_is_as_secret_as_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h2.pem");
    std::fs::write(&path, authority("ours").host().text()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let message = Secret::read(&path).unwrap_err().to_string();
    assert!(message.contains("chmod 600"), "{message}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let secret = Secret::read(&path).unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(certificates)");
}

#[test]
fn sessions_carry_bytes() {
    use std::io::{Read, Write};

    use crate::stream::Stream;

    let authority = authority("ours");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let door = crate::door::Door::bind(
        address,
        Some(authority.host()),
        move |stream, _| sender.send(stream).unwrap(),
        |_| {},
    );
    let _door = door.unwrap();
    let stream =
        Stream::connect(address, Some(&authority.host()), Duration::from_secs(30)).unwrap();
    let peer = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    (&stream).write_all(b"hello").unwrap();
    let mut room = [0; 5];
    (&peer).read_exact(&mut room).unwrap();
    assert_eq!(&room, b"hello");
}
