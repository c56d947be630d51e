use std::fmt::Write as _;

use super::palette;
use crate::table::Table;

/// A part of a page under its own heading.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// The heading, plain text.
    pub(crate) heading: String,
    /// The text below it, as HTML.
    pub(crate) body: String,
}

/// A drawing with what a reader needs to understand and remake it.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// Its title, plain text.
    pub(crate) title: String,
    /// The drawing and its legend, as HTML: what [`super::chart::line_chart`] and its like return.
    pub(crate) drawing: String,
    /// The explanation, the number of runs and the meaning of the spread; plain text.
    pub(crate) caption: String,
    /// The command that made the numbers.
    pub(crate) command: String,
}

/// A number at the top of a report.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    /// The number with its unit.
    pub(crate) value: String,
    /// Its meaning.
    pub(crate) meaning: String,
}

/// A picture of an [`image_grid`].
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// The picture as a `data:` URI; none where nothing was shown.
    pub(crate) data_uri: Option<String>,
    /// The caption, plain text.
    pub(crate) caption: String,
}

/// A whole page. `lead` is one paragraph of HTML below the title; `footer` is plain text.
pub(crate) fn page(title: &str, lead: &str, sections: &[Section], footer: &str) -> String {
    let mut navigation = String::new();
    let mut body = String::new();
    for (number, section) in sections.iter().enumerate() {
        let heading = escape(&section.heading);
        // Writing to a `String` cannot fail.
        let _ = writeln!(navigation, "<a href=\"#s{number}\">{heading}</a>");
        let _ =
            write!(body, "<section id=\"s{number}\">\n<h2>{heading}</h2>\n{}\n</section>\n", section.body);
    }
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n{lead}\n<nav>\n{navigation}</nav>\n\
         </header>\n<main>\n{body}</main>\n<footer>{}</footer>\n</body>\n</html>\n",
        escape(footer)
    )
}

/// Figures side by side where there is room.
pub(crate) fn figures(figures: &[Figure]) -> String {
    let mut html = "<div class=\"figures\">\n".to_owned();
    for figure in figures {
        let _ = write!(
            html,
            "<figure>\n<h3>{}</h3>\n{}\n<figcaption>{}{}</figcaption>\n</figure>\n",
            escape(&figure.title),
            figure.drawing,
            escape(&figure.caption),
            command_line(&figure.command)
        );
    }
    html + "</div>\n"
}

/// A table; `shade` gives the share, 0 to 1, by which the cell at a row and a column is tinted.
pub(crate) fn table(table: &Table, command: &str, shade: impl Fn(usize, usize) -> Option<f64>) -> String {
    let cell = |tag: &str, column: usize, style: &str, text: &str| {
        let class = if column < table.labels { " class=\"label\"" } else { style };
        format!("<{tag}{class}>{}</{tag}>", escape(text))
    };
    let mut html =
        format!("<div class=\"scroll\"><table>\n<caption>{}</caption>\n<thead><tr>", escape(&table.caption));
    html.extend(table.head.iter().enumerate().map(|(column, text)| cell("th", column, "", text)));
    html += "</tr></thead>\n<tbody>\n";
    for (row, texts) in table.rows.iter().enumerate() {
        html += "<tr>";
        for (column, text) in texts.iter().enumerate() {
            let style = shade(row, column).map(heat).unwrap_or_default();
            html += &cell("td", column, &style, text);
        }
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n" + &command_line(command)
}

/// A paragraph of plain text.
pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// Numbers in large type, side by side.
pub(crate) fn numbers(numbers: &[Number]) -> String {
    let mut html = "<div class=\"numbers\">\n".to_owned();
    for number in numbers {
        let _ = writeln!(
            html,
            "<div><b>{}</b><span>{}</span></div>",
            escape(&number.value),
            escape(&number.meaning)
        );
    }
    html + "</div>\n"
}

/// Rows of pictures, each under its label; columns are the same instants in every row.
pub(crate) fn image_grid(rows: &[(String, Vec<Image>)]) -> String {
    let mut html = "<div class=\"images\">\n".to_owned();
    for (label, images) in rows {
        let label = escape(label);
        let _ = write!(html, "<strong>{label}</strong>\n<div class=\"row\">\n");
        for image in images {
            let caption = escape(&image.caption);
            let picture = match &image.data_uri {
                Some(uri) => format!("<img alt=\"{label}, {caption}\" src=\"{}\">", escape(uri)),
                None => "<div class=\"missing\">nothing shown</div>".to_owned(),
            };
            let _ = writeln!(html, "<div>{picture}<small>{caption}</small></div>");
        }
        html += "</div>\n";
    }
    html + "</div>\n"
}

/// Plain text as HTML text or attribute value.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn command_line(command: &str) -> String {
    if command.is_empty() {
        return String::new();
    }
    format!("<div class=\"command\">Made by <code>{}</code></div>", escape(command))
}

/// From orange (nothing) over clear to blue (all): readable with any colour vision, on light and dark.
fn heat(share: f64) -> String {
    let share = share.clamp(0.0, 1.0);
    let colour = if share < 0.5 { palette::ORANGE } else { palette::BLUE };
    let strength = (share - 0.5).abs() * 0.9;
    let (red, green, blue) = (colour.0, colour.1, colour.2);
    format!(" class=\"heat\" style=\"background:rgba({red},{green},{blue},{strength:.2})\"")
}

const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        let section = Section { heading: "<script>".to_owned(), body: paragraph("a < b & \"c\"") };
        let html = page("<b>", "", &[section], "</footer>");
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(html.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(html.contains("&lt;/footer&gt;</footer>"));
    }

    #[test]
    fn a_table_tints_the_requested_cells() {
        let text = Table {
            caption: "caption".to_owned(),
            head: vec!["link".to_owned(), "share".to_owned()],
            rows: vec![vec!["fast".to_owned(), "100 %".to_owned()]],
            labels: 1,
        };
        let html = table(&text, "freshwire-lab", |_, column| (column == 1).then_some(1.0));
        assert!(html.contains(
            "<td class=\"label\">fast</td><td class=\"heat\" style=\"background:rgba(0,114,178,0.45)\">"
        ));
        assert!(html.contains("Made by <code>freshwire-lab</code>"));
    }

    #[test]
    fn a_missing_picture_says_so() {
        let images = vec![
            Image { data_uri: Some("data:image/jpeg;base64,AA==".to_owned()), caption: "3 s".to_owned() },
            Image { data_uri: None, caption: "4 s".to_owned() },
        ];
        let html = image_grid(&[("plain TCP".to_owned(), images)]);
        assert!(html.contains("<img alt=\"plain TCP, 3 s\" src=\"data:image/jpeg;base64,AA==\">"));
        assert!(html.contains("nothing shown"));
    }
}
