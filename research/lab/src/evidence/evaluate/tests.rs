use super::*;

fn item(text: &str) -> Item {
    let head = "publication = 'P'\nitem = 'table 1'\nsection = '1'\nshows = ''\nwhy = ''\n\
                [[run]]\nname = 'r'\ncommands = ['x']\nshort = ['x']\nminutes = 1\n";
    toml::from_str(&format!("{head}{text}")).unwrap()
}

fn lines(text: &str) -> BTreeMap<&str, Vec<Value>> {
    BTreeMap::from([("r", text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())])
}

fn values(row: &Numbered<'_>) -> Vec<(f64, f64)> {
    row.points.iter().map(|point| (point.x, point.y)).collect()
}

#[test]
fn lines_are_chosen_by_their_values_and_busy_ones_set_aside() {
    let item = item(
        "[[row]]\nname = 'rate'\nwhere = { 'plan.scheme' = 'tcp', 'plan.rate' = 'none' }\ny = 'metrics.rate'\n\
         published = 10\nratio = [0.9, 1.1]\n\
         [[row]]\nname = 'layers'\nwhere = { 'plan.scheme' = 'tcp' }\ny = 'metrics.layers'\nscale = 2\n",
    );
    let lines = lines(
        r#"{"data":{"plan":{"scheme":"tcp","rate":null},"trust":{"trustworthy":true},"metrics":{"rate":9.5,"layers":[1,2]}}}
{"data":{"plan":{"scheme":"tcp","rate":null},"trust":{"trustworthy":false},"metrics":{"rate":1,"layers":[0,0]}}}
{"data":{"plan":{"scheme":"tcp","rate":5},"trust":{"trustworthy":true},"metrics":{"rate":7,"layers":[3,4]}}}
{"data":{"plan":{"scheme":"other","rate":null},"metrics":{"rate":7}}}"#,
    );
    let found = evaluate(&item, &lines, false);
    assert_eq!((values(&found.rows[0]), found.rows[0].lines, found.rows[0].busy), (vec![(1.0, 9.5)], 1, 1));
    assert_eq!(found.rows[0].as_expected, Some(true));
    assert_eq!(values(&found.rows[1]), [(1.0, 4.0), (2.0, 6.0)]);
    assert_eq!((found.rows[1].points[0].least, found.rows[1].points[0].most), (2.0, 6.0));
}

#[test]
fn curves_come_from_paths_names_and_pairs() {
    let item = item(
        "[[row]]\nname = 'path'\neach = 'cells'\nx = 'delay'\ny = 'lost'\n\
         [[row]]\nname = 'named'\nwhere = { name = 'A1, {x} B' }\nx = [64, 128]\ny = 'median'\n\
         [[row]]\nname = 'share'\nwhere = { name = 'A1, {x} B' }\nx = [64, 128]\ny = 'median'\nover = 'named'\n\
         [[row]]\nname = 'below'\nwhere = { name = 'A1, 128 B' }\ny = 'median'\nbelow = 'path'\n\
         [[row]]\nname = 'pairs'\ny = 'points'\n",
    );
    let lines = lines(
        r#"{"data":{"cells":[{"delay":2,"lost":8},{"delay":1,"lost":4}],"points":[[0.5,7],[0.7,9]]}}
{"data":{"name":"A1, 64 B","median":3}}
{"data":{"name":"A1, 128 B","median":6}}"#,
    );
    let found = evaluate(&item, &lines, false);
    assert_eq!(values(&found.rows[0]), [(1.0, 4.0), (2.0, 8.0)]);
    assert_eq!(values(&found.rows[1]), [(64.0, 3.0), (128.0, 6.0)]);
    assert_eq!(values(&found.rows[2]), [(64.0, 1.0), (128.0, 1.0)]);
    assert_eq!(values(&found.rows[3]), [(1.0, -50.0)]);
    assert_eq!(values(&found.rows[4]), [(0.5, 7.0), (0.7, 9.0)]);
}

#[test]
fn claims_hold_or_do_not_or_cannot_be_judged() {
    let claims = [
        ("above = 'low'", Some(true)),
        ("above = 'low'\ntimes = 4", Some(false)),
        ("above = 'nothing'", None),
        ("order = 'rises'", Some(true)),
        ("order = 'falls'", Some(false)),
        ("order = 'flat'\nslack = 0.7", Some(true)),
        ("order = 'flat'\nslack = 0.5", Some(false)),
        ("between = [3, 9]", Some(true)),
        ("between = [4, 9]", Some(false)),
        ("between = [4, 9]\nlong = true", None),
    ];
    let text: String =
        claims.iter().map(|(text, _)| format!("[[claim]]\nsays = ''\nrow = 'high'\n{text}\n")).collect();
    let item = item(&format!(
        "[[row]]\nname = 'high'\ny = 'high'\n[[row]]\nname = 'low'\ny = 'low'\n[[row]]\nname = 'nothing'\ny = 'absent'\n{text}"
    ));
    let lines = lines(r#"{"high":[3,5,9],"low":[1,2,3]}"#);
    let found = evaluate(&item, &lines, true);
    assert_eq!(found.rows[2].as_expected, Some(false));
    let judged: Vec<Option<bool>> = found.claims.iter().map(|claim| claim.holds).collect();
    assert_eq!(judged, claims.map(|(_, holds)| holds));
    assert!(!found.is_as_expected());
}

#[test]
fn a_ratio_is_expected_of_every_published_number() {
    let item = item("[[row]]\nname = 'r'\ny = 'y'\npublished = [1, 2]\nratio = [0.5, 2]\nlong = true\n");
    let expected = |text: &str, is_short| evaluate(&item, &lines(text), is_short).rows[0].as_expected;
    assert_eq!(expected(r#"{"y":[1,2]}"#, false), Some(true));
    assert_eq!(expected(r#"{"y":[1,9]}"#, false), Some(false));
    assert_eq!(expected(r#"{"y":[1]}"#, false), Some(false), "a point is missing");
    assert_eq!(expected(r#"{"y":[1,9]}"#, true), None, "the short form expects nothing");
    assert_eq!(expected("{}", false), Some(false), "the run has no such number");
    assert_eq!(evaluate(&item, &BTreeMap::new(), false).rows[0].as_expected, None, "there is no run");
}

#[test]
fn a_place_with_busy_results_alone_is_no_gap() {
    let item = item("[[row]]\nname = 'r'\nx = 'rate'\ny = 'y'\npublished = [1, 2]\nratio = [0.5, 1.5]\n");
    let lines = lines(
        r#"{"rate":1,"y":1,"trust":{"trustworthy":false}}
{"rate":2,"y":2,"trust":{"trustworthy":true}}
{"rate":2,"y":9,"trust":{"trustworthy":false}}"#,
    );
    let found = evaluate(&item, &lines, false);
    assert_eq!(values(&found.rows[0]), [(1.0, 1.0), (2.0, 2.0)]);
    assert_eq!((found.rows[0].as_expected, found.rows[0].busy), (Some(true), 1));
}
