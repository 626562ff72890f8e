//! The settings of TLS that follow from a secret: with the key pairs that follow from a key, or with
//! certificates.
//!
//! `seed = HKDF-SHA256(salt = SALT, key of the file, info = label)`, and the seed is an Ed25519 private
//! key. Each side and each purpose has a label of its own: what one side sends can't be sent back to it,
//! and a data link can't pass for a control session.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, UnbufferedClientConnection};
use rustls::crypto::ring::{cipher_suite, kx_group, sign};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    AlwaysResolvesServerRawPublicKeys, ClientHello, NoServerSessionStorage, ResolvesServerCert,
    UnbufferedServerConnection,
};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use crate::certificates::Certificates;
use crate::secret::{KEY_BYTES, Kind, Secret};

const SALT: &[u8] = b"slackwater cluster key, version 1";

/// The bytes before the seed in the PKCS #8 form of an Ed25519 private key (RFC 8410).
const PKCS8_HEAD: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// What connections are for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Sessions between an orchestrator and its agents.
    Control,
    /// Links between workers.
    Data,
}

impl Purpose {
    /// The labels of the connecting and the accepting side.
    fn labels(self) -> [&'static str; 2] {
        match self {
            Purpose::Control => ["control, connecting", "control, accepting"],
            Purpose::Data => ["data, connecting", "data, accepting"],
        }
    }

    fn protocol(self) -> &'static [u8] {
        match self {
            Purpose::Control => b"slackwater-control/1",
            Purpose::Data => b"slackwater-data/1",
        }
    }
}

/// The settings of both sides.
pub(crate) struct Keys {
    connecting: Arc<ClientConfig>,
    accepting: Arc<ServerConfig>,
    protocol: Option<&'static [u8]>,
}

impl Keys {
    pub(crate) fn new(secret: &Secret, purpose: Purpose) -> Keys {
        match secret.kind() {
            Kind::Keys(keys) => Keys::of_keys(keys, purpose),
            Kind::Certificates(certificates) => Keys::of_certificates(certificates, purpose),
        }
    }

    fn of_keys(keys: &[[u8; KEY_BYTES]], purpose: Purpose) -> Keys {
        let [connecting, accepting] = purpose.labels();
        let provider = Arc::new(provider());
        let ours = |label| Arc::new(shown(&derived(&keys[0], label)));
        let accepted = |label| {
            let pairs = keys.iter().map(|key| derived(key, label));
            let keys = pairs.map(|pair| public_key(&pair));
            Arc::new(Pinned {
                keys: keys.collect(),
                provider: Arc::clone(&provider),
            })
        };
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect("the suite is one of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(accepted(accepting))
            .with_client_cert_resolver(Arc::new(
                rustls::client::AlwaysResolvesClientRawPublicKeys::new(ours(connecting)),
            ));
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect("the suite is one of TLS 1.3")
            .with_client_cert_verifier(accepted(connecting))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(ours(
                accepting,
            ))));
        Keys::configured(client, server)
    }

    /// The purpose is the name of a protocol, which both sides have to say: certificates have none.
    fn of_certificates(certificates: &Certificates, purpose: Purpose) -> Keys {
        let provider = Arc::new(provider());
        let checked = "it was made when the file was read";
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect("the suite is one of TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(certificates.server_verifier().expect(checked))
            .with_client_cert_resolver(Arc::new(Shown(certificates.shown())));
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the suite is one of TLS 1.3")
            .with_client_cert_verifier(certificates.client_verifier().expect(checked))
            .with_cert_resolver(Arc::new(Shown(certificates.shown())));
        client.alpn_protocols = vec![purpose.protocol().to_vec()];
        server.alpn_protocols = client.alpn_protocols.clone();
        let keys = Keys::configured(client, server);
        Keys {
            protocol: Some(purpose.protocol()),
            ..keys
        }
    }

    fn configured(mut client: ClientConfig, mut server: ServerConfig) -> Keys {
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Keys {
            connecting: Arc::new(client),
            accepting: Arc::new(server),
            protocol: None,
        }
    }

    /// What the peer has to call the protocol, if its keys don't say what they are for.
    pub(crate) fn protocol(&self) -> Option<&'static [u8]> {
        self.protocol
    }

    pub(crate) fn connecting(&self) -> io::Result<UnbufferedClientConnection> {
        // Needed by the call, and used for nothing: an address is not sent, and keys are pinned.
        let nobody = ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into());
        let end = UnbufferedClientConnection::new(Arc::clone(&self.connecting), nobody);
        end.map_err(io::Error::other)
    }

    pub(crate) fn accepting(&self) -> io::Result<UnbufferedServerConnection> {
        let end = UnbufferedServerConnection::new(Arc::clone(&self.accepting));
        end.map_err(io::Error::other)
    }
}

/// One of each kind, so that there is nothing to negotiate.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        kx_groups: vec![kx_group::X25519],
        ..rustls::crypto::ring::default_provider()
    }
}

fn derived(key: &[u8; KEY_BYTES], label: &str) -> Arc<dyn SigningKey> {
    let mut pkcs8 = [0; PKCS8_HEAD.len() + KEY_BYTES];
    let (head, seed) = pkcs8.split_at_mut(PKCS8_HEAD.len());
    head.copy_from_slice(&PKCS8_HEAD);
    let derived = Salt::new(HKDF_SHA256, SALT).extract(key);
    let filled = derived
        .expand(&[label.as_bytes()], HKDF_SHA256)
        .and_then(|bytes| bytes.fill(seed));
    filled.expect("as many bytes as the hash has");
    sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..])).expect("any seed is a key")
}

fn public_key(pair: &Arc<dyn SigningKey>) -> CertificateDer<'static> {
    let key = pair.public_key().expect("an Ed25519 pair has one");
    CertificateDer::from(key.to_vec())
}

fn shown(pair: &Arc<dyn SigningKey>) -> CertifiedKey {
    CertifiedKey::new(vec![public_key(pair)], Arc::clone(pair))
}

/// The certificate that is always shown.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The peer's keys that are accepted.
#[derive(Debug)]
struct Pinned {
    /// Public keys in the form in which they are sent.
    keys: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, key: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        // Public keys: how long the comparison takes tells nothing.
        if others.is_empty() && self.keys.contains(key) {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }
}

/// Nothing here makes a connection of TLS 1.2.
fn old_signature() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not used".to_owned()))
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key, others)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        old_signature()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key, others)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        old_signature()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
