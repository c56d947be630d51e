/// Bytes that nobody can guess.
pub(super) fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    crate::tls::provider().secure_random.fill(&mut bytes).expect("the system gives random bytes");
    bytes
}
