//! Markup as a tree of elements. Text and attributes are escaped when the tree is rendered, so that foreign text cannot
//! become markup.

#[derive(Clone, Debug)]
pub(crate) struct Element {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    Element(Element),
    Text(String),
    /// Our own style sheet or script.
    Verbatim(&'static str),
}

impl Element {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: Vec::new(), children: Vec::new() }
    }

    pub(crate) fn with(mut self, attribute: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((attribute, value.into()));
        self
    }

    pub(crate) fn class(self, names: impl Into<String>) -> Self {
        self.with("class", names)
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.children.push(Node::Text(text.into()));
        self
    }

    /// Adds markup that is part of the program: `'static` excludes run-time text.
    pub(crate) fn verbatim(mut self, markup: &'static str) -> Self {
        self.children.push(Node::Verbatim(markup));
        self
    }

    pub(crate) fn child(mut self, child: Self) -> Self {
        self.children.push(Node::Element(child));
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children.extend(children.into_iter().map(Node::Element));
        self
    }

    /// The markup. Children of elements without text are on separate lines.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(self.name);
        for (name, value) in &self.attributes {
            out.push(' ');
            out.push_str(name);
            if !value.is_empty() {
                out.push_str("=\"");
                escape(value, out);
                out.push('"');
            }
        }
        out.push('>');
        if is_void(self.name) {
            return;
        }
        let only_elements = self.children.iter().all(|child| matches!(child, Node::Element(_)));
        let is_block = only_elements && !self.children.is_empty();
        for child in &self.children {
            if is_block {
                out.push('\n');
            }
            match child {
                Node::Element(element) => element.write(out),
                Node::Text(text) => escape(text, out),
                Node::Verbatim(markup) => out.push_str(markup),
            }
        }
        if is_block {
            out.push('\n');
        }
        out.push_str("</");
        out.push_str(self.name);
        out.push('>');
    }
}

/// Elements without an end tag in HTML.
fn is_void(name: &str) -> bool {
    matches!(name, "meta" | "link" | "input" | "br" | "hr" | "wbr")
}

/// Escapes text and attributes in double quotes. Control characters become spaces.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            other if other.is_control() => out.push(' '),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_become_markup() {
        let element = Element::new("p").with("title", "\"><script>").text("<b>'&'\u{1b}[2J");
        assert_eq!(
            element.render(),
            "<p title=\"&quot;&gt;&lt;script&gt;\">&lt;b&gt;&#39;&amp;&#39; [2J</p>"
        );
    }

    #[test]
    fn elements_stand_on_lines_of_their_own_and_text_stays_in_its_line() {
        let list = Element::new("ul").children(["one", "two"].map(|item| Element::new("li").text(item)));
        assert_eq!(list.render(), "<ul>\n<li>one</li>\n<li>two</li>\n</ul>");
        assert_eq!(Element::new("meta").with("charset", "utf-8").render(), "<meta charset=\"utf-8\">");
        assert_eq!(Element::new("button").with("hidden", "").render(), "<button hidden></button>");
    }
}
