//! Certificates in the place of a key that all hosts know: for those who have an authority already.
//!
//! One file in the PEM format, in this order: this host's certificate, those between it and the authority's,
//! the private key, the authorities' own:
//!
//! ```text
//! cat h2.crt h2.key ca.crt > h2.pem
//! ```
//!
//! A peer is let in if one of the authorities has signed its certificate, it is valid now, and the peer has
//! its private key. Names are not compared: agents have no fixed addresses, and whoever may take part may do
//! everything. So the authority is to be one that signs nothing else.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::sign;
use rustls::pki_types::pem::{self, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// What a file of certificates has, and one of keys has not.
pub(crate) const BEGIN: &str = "-----BEGIN ";

/// How to make such a file.
const ORDER: &str = "cat this-host.crt this-host.key authority.crt > this-host.pem";

/// What this host shows, and whom it lets in.
pub(crate) struct Certificates {
    /// The file.
    text: String,
    shown: Arc<CertifiedKey>,
    authorities: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl Certificates {
    /// Parses a file.
    ///
    /// # Errors
    ///
    /// What is wrong, after the name of the file.
    pub(crate) fn parse(text: &str) -> Result<Certificates, String> {
        let (mut chain, mut key, mut authorities) = (Vec::new(), None, RootCertStore::empty());
        let mut rest = text.as_bytes();
        loop {
            let line = line(text, rest);
            // The library's own message shows bytes, which may be those of a key.
            let section = pem::from_buf(&mut rest).map_err(|_| {
                format!(
                    ":{line}: not a section of the PEM format, or not all of one; copy it again"
                )
            })?;
            let Some((kind, bytes)) = section else {
                break;
            };
            match kind {
                SectionKind::Certificate if key.is_none() => {
                    chain.push(CertificateDer::from(bytes))
                }
                SectionKind::Certificate => {
                    let added = authorities.add(CertificateDer::from(bytes));
                    added.map_err(|error| {
                        format!(
                            ":{line}: not the certificate of an authority: {}",
                            said(&error)
                        )
                    })?;
                }
                SectionKind::PrivateKey => set(&mut key, PrivateKeyDer::Pkcs8(bytes.into()), line)?,
                SectionKind::RsaPrivateKey => {
                    set(&mut key, PrivateKeyDer::Pkcs1(bytes.into()), line)?;
                }
                SectionKind::EcPrivateKey => {
                    set(&mut key, PrivateKeyDer::Sec1(bytes.into()), line)?;
                }
                other => {
                    return Err(format!(
                        ":{line}: neither a certificate nor a private key, but {other:?}; remove it"
                    ));
                }
            }
        }
        let missing = |what| Err(format!(": holds no {what}; make it so: {ORDER}"));
        let Some(key) = key else {
            return missing("private key");
        };
        if chain.is_empty() {
            return missing("certificate before the private key");
        }
        if authorities.is_empty() {
            return missing("certificate of an authority, after the private key");
        }
        Certificates::new(text, chain, &key, authorities)
    }

    fn new(
        text: &str,
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
        authorities: RootCertStore,
    ) -> Result<Certificates, String> {
        let key = sign::any_supported_type(key)
            .map_err(|_| ": the private key is not one of Ed25519, ECDSA or RSA".to_owned())?;
        let shown = CertifiedKey::new(chain, key);
        shown.keys_match().map_err(|_| {
            format!(
                ": the private key is not that of the first certificate, which is to be this host's; make \
                 it so: {ORDER}"
            )
        })?;
        let certificates = Certificates {
            text: text.to_owned(),
            shown: Arc::new(shown),
            authorities: Arc::new(authorities),
            provider: Arc::new(rustls::crypto::ring::default_provider()),
        };
        // Others would say so, later and one by one.
        let [ours, between @ ..] = &certificates.shown.cert[..] else {
            return Err(": holds no certificate".to_owned());
        };
        let now = UnixTime::now();
        let checked = certificates.check(ours, between, now);
        let checked = checked.and_then(|()| {
            let client = certificates.client_verifier()?;
            client.verify_client_cert(ours, between, now).map(|_| ())
        });
        checked.map_err(|error| format!(": this host's certificate {}", said(&error)))?;
        Ok(certificates)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn shown(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.shown)
    }

    /// Who judges those that connect.
    pub(crate) fn client_verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, Error> {
        let (authorities, provider) = (Arc::clone(&self.authorities), Arc::clone(&self.provider));
        WebPkiClientVerifier::builder_with_provider(authorities, provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))
    }

    /// Who judges those that are connected to.
    pub(crate) fn server_verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        let (authorities, provider) = (Arc::clone(&self.authorities), Arc::clone(&self.provider));
        let signatures = WebPkiServerVerifier::builder_with_provider(authorities, provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Arc::new(Nameless {
            authorities: Arc::clone(&self.authorities),
            provider: Arc::clone(&self.provider),
            signatures,
        }))
    }

    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        check(&self.authorities, &self.provider, certificate, between, now)
    }
}

/// Sets the private key, of which there is one.
fn set(
    key: &mut Option<PrivateKeyDer<'static>>,
    found: PrivateKeyDer<'static>,
    line: usize,
) -> Result<(), String> {
    match key.replace(found) {
        None => Ok(()),
        Some(_) => Err(format!(
            ":{line}: a second private key; keep that of this host's certificate"
        )),
    }
}

/// The number of the line at which the next section begins.
fn line(text: &str, rest: &[u8]) -> usize {
    let before = text.len() - rest.len();
    let begin = text[before..]
        .find(BEGIN)
        .map_or(text.len(), |at| before + at);
    text[..begin].lines().count() + 1
}

/// What is wrong with a certificate, after its name.
pub(crate) fn said(error: &Error) -> String {
    let Error::InvalidCertificate(error) = error else {
        return error.to_string();
    };
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; compare the clocks of the hosts".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "was not signed by an authority of the file".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for both sides of a connection (extended key usage: serverAuth and clientAuth)"
                .to_owned()
        }
        other => format!("is not valid: {other}"),
    }
}

fn check(
    authorities: &RootCertStore,
    provider: &CryptoProvider,
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), Error> {
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(certificate)?,
        authorities,
        between,
        now,
        provider.signature_verification_algorithms.all,
    )
}

/// Judges those that are connected to, as [`WebPkiServerVerifier`] does, without comparing names.
#[derive(Debug)]
struct Nameless {
    authorities: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    signatures: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Nameless {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check(&self.authorities, &self.provider, certificate, between, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signatures
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
