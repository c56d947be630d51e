//! Digits five rows high.

/// The rows of a text of digits, points and `s`; other characters are blank.
pub(super) fn rows(text: &str) -> [String; 5] {
    let mut rows: [String; 5] = Default::default();
    for character in text.chars() {
        for (row, part) in rows.iter_mut().zip(glyph(character)) {
            row.push_str(&part.replace('#', "█"));
            row.push(' ');
        }
    }
    rows
}

fn glyph(character: char) -> [&'static str; 5] {
    match character {
        '0' => ["####", "#  #", "#  #", "#  #", "####"],
        '1' => ["  # ", " ## ", "  # ", "  # ", " ###"],
        '2' => ["####", "   #", "####", "#   ", "####"],
        '3' => ["####", "   #", " ###", "   #", "####"],
        '4' => ["#  #", "#  #", "####", "   #", "   #"],
        '5' => ["####", "#   ", "####", "   #", "####"],
        '6' => ["####", "#   ", "####", "#  #", "####"],
        '7' => ["####", "   #", "  # ", " #  ", " #  "],
        '8' => ["####", "#  #", "####", "#  #", "####"],
        '9' => ["####", "#  #", "####", "   #", "####"],
        '.' => ["  ", "  ", "  ", "  ", "# "],
        's' => ["    ", " ###", " #  ", "  # ", "### "],
        _ => ["  ", "  ", "  ", "  ", "  "],
    }
}
