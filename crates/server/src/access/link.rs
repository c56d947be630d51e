use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::rights::Right;

/// Signs and checks links: `?expires=SECONDS&sig=HEX` behind a stream's address lets anybody in until `expires`
/// (seconds since 1970). The signature is HMAC-SHA256 over the right, the stream's name and the time. Debug output hides
/// the key.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkKey(Vec<u8>);

/// The contents of a link's query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkVerdict {
    Valid,
    Expired,
    Forged,
}

impl LinkKey {
    /// A key from a secret. Anybody who knows the secret can sign.
    pub fn new(secret: &str) -> Self {
        Self(secret.as_bytes().to_vec())
    }

    /// The query that makes the stream's address a link which is valid until `expires`, in seconds since 1970.
    pub fn query(&self, right: Right, stream: &str, expires: u64) -> String {
        let signature = HEXLOWER.encode(&self.mac(right, stream, expires).finalize().into_bytes());
        format!("expires={expires}&sig={signature}")
    }

    /// `None`: the query is no link.
    pub(super) fn check(&self, query: &str, right: Right, stream: &str, now: u64) -> Option<LinkVerdict> {
        let value = |wanted: &str| {
            query.split('&').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == wanted)
        };
        let (_, signature) = value("sig")?;
        let parsed = value("expires").and_then(|(_, text)| text.parse::<u64>().ok());
        let (Some(expires), Ok(signature)) = (parsed, HEXLOWER_PERMISSIVE.decode(signature.as_bytes()))
        else {
            return Some(LinkVerdict::Forged);
        };
        if self.mac(right, stream, expires).verify_slice(&signature).is_err() {
            return Some(LinkVerdict::Forged);
        }
        Some(if now < expires { LinkVerdict::Valid } else { LinkVerdict::Expired })
    }

    /// The name is in the middle: whatever it is, the first line and the last line stay what they are.
    fn mac(&self, right: Right, stream: &str, expires: u64) -> Hmac<Sha256> {
        let right = match right {
            Right::View => "view",
            Right::Publish => "publish",
            Right::Broker => "broker",
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(format!("{right}\n{stream}\n{expires}").as_bytes());
        mac
    }
}

impl std::fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkKey(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_valid_for_what_it_was_signed_for() {
        let key = LinkKey::new("a secret of some length");
        let query = key.query(Right::View, "live", 1000);
        let check = |query: &str, right, stream, now| key.check(query, right, stream, now);
        assert_eq!(check(&query, Right::View, "live", 999), Some(LinkVerdict::Valid));
        assert_eq!(check(&format!("a=b&{query}&c"), Right::View, "live", 0), Some(LinkVerdict::Valid));
        assert_eq!(check(&query, Right::View, "live", 1000), Some(LinkVerdict::Expired));
        assert_eq!(check(&query, Right::Publish, "live", 0), Some(LinkVerdict::Forged));
        assert_eq!(check(&query, Right::View, "live2", 0), Some(LinkVerdict::Forged));
        assert_eq!(check(&query.replace("1000", "2000"), Right::View, "live", 0), Some(LinkVerdict::Forged));
        assert_eq!(LinkKey::new("other").check(&query, Right::View, "live", 0), Some(LinkVerdict::Forged));
    }

    #[test]
    fn a_query_without_a_link_is_none_and_half_a_link_is_forged() {
        let key = LinkKey::new("a secret of some length");
        let check = |query| key.check(query, Right::View, "live", 0);
        for query in ["", "x=y", "expires=1000", "signature=00"] {
            assert_eq!(check(query), None, "{query}");
        }
        for query in ["sig=", "sig=00&expires=1", "expires=1000&sig=zz", "expires=-1&sig=00", "expires=&sig="]
        {
            assert_eq!(check(query), Some(LinkVerdict::Forged), "{query}");
        }
    }

    /// Computed with `printf 'view\nlive\n1000' | openssl dgst -sha256 -hmac 'a secret of some length'`.
    #[test]
    fn others_can_sign_too() {
        let query = LinkKey::new("a secret of some length").query(Right::View, "live", 1000);
        assert_eq!(
            query,
            "expires=1000&sig=280108c4e449385fce1309c97b1e9611bdd2909a762e89a1c07e8c99a4c84c4d"
        );
    }
}
