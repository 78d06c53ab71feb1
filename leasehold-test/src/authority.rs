//! An authority of one test, and the certificates that it signs.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

/// Signs certificates. Nobody else knows it.
#[derive(Debug)]
pub struct Authority {
    /// Its own certificate, in PEM.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its private key, both in PEM.
#[derive(Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// Makes one.
    ///
    /// # Panics
    ///
    /// When no certificate can be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let name = format!("authority {}", uuid::Uuid::new_v4());
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("a certificate can be made");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for these names and addresses.
    ///
    /// # Panics
    ///
    /// When no certificate can be made.
    #[must_use]
    pub fn sign(&self, names: &[&str]) -> Pair {
        self.sign_with(names, |_| ())
    }

    /// A certificate whose time is over.
    ///
    /// # Panics
    ///
    /// When no certificate can be made.
    #[must_use]
    pub fn sign_expired(&self, names: &[&str]) -> Pair {
        self.sign_with(names, |params| {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    fn sign_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are good");
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody");
        change(&mut params);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("a certificate can be made");
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// Writes both to files in `dir`; their paths.
    ///
    /// # Panics
    ///
    /// When they cannot be written.
    #[must_use]
    pub fn write(&self, dir: &Path, name: &str) -> (PathBuf, PathBuf) {
        let write = |ending: &str, text: &str| {
            let path = dir.join(format!("{name}.{ending}"));
            std::fs::write(&path, text).expect("a file can be written");
            path
        };
        (write("pem", &self.certificate), write("key", &self.key))
    }
}
