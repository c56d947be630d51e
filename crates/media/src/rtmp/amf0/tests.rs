use bolero::check;

use super::*;
use crate::testing::ITERATIONS;

#[test]
fn a_command_comes_back() {
    let info = object([
        ("app", "live".into()),
        ("audioCodecs", 3191.0.into()),
        ("fpad", false.into()),
        ("fourCcList", Value::Array(vec!["av01".into(), "hvc1".into()])),
        ("at", Value::Date(1.5e12)),
    ]);
    let values = vec!["connect".into(), 1.0.into(), info, Value::Null];
    let read = read_all(&write_all(&values)).expect("values");
    assert_eq!(read, values);
    assert_eq!(read[2].get("app").and_then(Value::as_str), Some("live"));
}

#[test]
fn deviations_of_encoders_are_understood() {
    // An ECMA array whose count is wrong, and whose end is missing.
    let array = [8, 0, 0, 0, 9, 0, 1, b'a', 5];
    assert_eq!(read_all(&array), Ok(vec![object([("a", Value::Null)])]));
    // A long string, XML, undefined, unsupported, a typed object.
    let rest = [12, 0, 0, 0, 1, b'x', 15, 0, 0, 0, 0, 6, 13, 16, 0, 1, b'T', 0, 0, 9];
    let expected = vec!["x".into(), "".into(), Value::Null, Value::Null, object([])];
    assert_eq!(read_all(&rest), Ok(expected));
}

#[test]
fn hostile_values_are_refused() {
    assert_eq!(read_all(&[7, 0, 0]), Err(AmfError::Type(7)), "references stand for any number of values");
    assert_eq!(read_all(&[2, 0, 1, 0xff]), Err(AmfError::Text));
    assert_eq!(read_all(&[10, 0xff, 0xff, 0xff, 0xff, 5]), Err(AmfError::Short));
    assert_eq!(read_all(&[3, 0, 1, b'a'].repeat(100_000)), Err(AmfError::Depth));
    assert_eq!(read_all(&[10, 0, 0, 0, 1].repeat(100_000)), Err(AmfError::Depth));
}

#[test]
fn long_texts_are_cut_between_characters() {
    let text = "\u{fc}".repeat(40_000);
    let read = read_all(&write_all(&[text.as_str().into()])).expect("a value");
    assert_eq!(read[0].as_str().map(str::len), Some(65_534));
}

/// Whatever can be read is the same when it is written and read again.
#[test]
fn any_bytes() {
    check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(values) = read_all(bytes) else { return };
        let written = write_all(&values);
        assert_eq!(write_all(&read_all(&written).expect("values")), written);
    });
}
