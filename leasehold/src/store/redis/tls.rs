//! TLS: whom a client trusts, how it shows who it is, and what a failed handshake means.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as TlsError, RootCertStore, crypto,
};

use super::error;
use crate::error::{Error, Refusal, Result};

/// Whom a client trusts and how it shows who it is, as it was set. Shows no key.
#[derive(Clone, Default)]
pub(crate) struct Trust {
    authority: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Trust {
    pub(crate) fn set_authority(&mut self, pem: Vec<u8>) {
        self.authority = Some(pem);
    }

    pub(crate) fn set_identity(&mut self, certificate: Vec<u8>, key: Vec<u8>) {
        self.identity = Some((certificate, key));
    }

    /// Whether anything was set, so that a connection without TLS cannot be meant.
    pub(crate) fn is_set(&self) -> bool {
        self.authority.is_some() || self.identity.is_some()
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let Some(pem) = &self.authority else {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(Error::config(
                    "this system trusts no authority: name one with ca_certificate",
                ));
            }
            return Ok(roots);
        };
        for certificate in certificates(pem, "of the authority")? {
            roots.add(certificate).map_err(|bad| {
                Error::config(format!("a certificate of the authority is bad: {bad}"))
            })?;
        }
        Ok(roots)
    }

    fn config(&self) -> Result<ClientConfig> {
        // Named, so that nothing depends on what else the program has made the default.
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|bad| Error::config(format!("TLS cannot be used: {bad}")))?
            .with_root_certificates(self.roots()?);
        let Some((certificate, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(certificate, "of the client")?;
        // What is wrong with a key is not said in the parser's words: they might quote it.
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| Error::config("the client's private key is no key in PEM"))?;
        builder.with_client_auth_cert(chain, key).map_err(|bad| {
            Error::config(format!(
                "the client's certificate and key do not fit: {bad}"
            ))
        })
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("authority", &self.authority.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

fn certificates(pem: &[u8], whose: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(Error::config(format!(
            "the certificate {whose} is none in PEM"
        ))),
        Err(bad) => Err(Error::config(format!(
            "the certificate {whose} cannot be read: {bad}"
        ))),
    }
}

/// How to speak TLS to one server.
#[derive(Clone)]
pub(super) struct Tls {
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Tls {
    /// The certificate of the server must be for `host`, a name or an address.
    pub(super) fn new(host: &str, trust: &Trust) -> Result<Self> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::config("the URL's host is no name that a certificate can have"))?;
        let config = Arc::new(trust.config()?);
        Ok(Self {
            name,
            connector: config.into(),
        })
    }

    pub(super) async fn wrap(
        &self,
        stream: TcpStream,
        server: &str,
    ) -> Result<TlsStream<TcpStream>> {
        let shaken = self.connector.connect(self.name.clone(), stream).await;
        shaken.map_err(|failed| {
            refusal(&failed, server).unwrap_or_else(|| error::unreachable(server, failed))
        })
    }
}

/// What the two sides could not agree on, if that is why something failed.
pub(super) fn refusal(failed: &(dyn StdError + 'static), server: &str) -> Option<Error> {
    let why = match verdict(failed)? {
        TlsError::InvalidCertificate(bad) => certificate(bad),
        TlsError::AlertReceived(alert) => alerted(*alert),
        TlsError::InvalidMessage(_) => "it does not speak TLS".to_owned(),
        other => other.to_string(),
    };
    Some(Error::Refused(Refusal::Tls(format!("{server}: {why}"))))
}

/// The reason of TLS inside an error: it may stand in an I/O error, which may stand in another.
fn verdict<'a>(failed: &'a (dyn StdError + 'static)) -> Option<&'a TlsError> {
    let mut next = Some(failed);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // Both name as their source what is behind the error that they hold, not that error.
        next = if let Some(shared) = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
            Some(&**shared)
        } else if let Some(inner) = error.downcast_ref().and_then(io::Error::get_ref) {
            Some(inner)
        } else {
            error.source()
        };
    }
    None
}

fn certificate(bad: &CertificateError) -> String {
    let words = match bad {
        CertificateError::UnknownIssuer => {
            "its certificate is of no authority that this client trusts"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet"
        }
        other => return format!("its certificate is bad: {other:?}"),
    };
    words.to_owned()
}

/// The server refused.
fn alerted(alert: AlertDescription) -> String {
    let words = match alert {
        AlertDescription::CertificateRequired => "it asks for a client certificate",
        AlertDescription::UnknownCA => "it does not trust the authority of the client certificate",
        AlertDescription::CertificateExpired => "the client certificate has expired",
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => "it refuses the client certificate",
        // Before TLS 1.3 a missing client certificate has no word of its own.
        AlertDescription::HandshakeFailure => {
            "the two sides have nothing in common, or it asks for a client certificate"
        }
        AlertDescription::ProtocolVersion => "it speaks no version of TLS that is safe",
        other => return format!("it refuses: {other:?}"),
    };
    words.to_owned()
}
