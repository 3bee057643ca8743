//! Lists in pages.

use form_urlencoded::parse;
use waypost_admin_api::{PAGE_ITEMS_MAX, Page};

use super::error::ApiError;

/// The query of a list: `?limit=N&after=CURSOR`, and whatever else the list takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageQuery {
    pub(super) limit: usize,
    pub(super) after: Option<String>,
}

impl PageQuery {
    /// Reads a raw query.
    pub(super) fn read(query: Option<&str>) -> Result<Self, ApiError> {
        let mut page = Self {
            limit: PAGE_ITEMS_MAX,
            after: None,
        };
        for (name, value) in parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let limit: usize = limit.ok_or_else(|| {
                        ApiError::bad_request(format!(
                            "limit={value} is not a number from 1 to {PAGE_ITEMS_MAX}"
                        ))
                    })?;
                    page.limit = limit.min(PAGE_ITEMS_MAX);
                }
                "after" => page.after = Some(value.into_owned()),
                _ => {}
            }
        }
        Ok(page)
    }

    /// Cuts a list whose items are in the order of their cursors; `view` makes only the items of
    /// the page, and drops those that are gone by now.
    pub(super) fn cut<T, V>(
        &self,
        items: Vec<T>,
        cursor: impl Fn(&T) -> String,
        view: impl FnMut(&T) -> Option<V>,
    ) -> Page<V> {
        let start = match &self.after {
            Some(after) => items.partition_point(|item| cursor(item) <= *after),
            None => 0,
        };
        let end = items.len().min(start.saturating_add(self.limit));
        let next = (end < items.len()).then(|| items[start..end].last().map(&cursor));
        Page {
            items: items[start..end].iter().filter_map(view).collect(),
            next: next.flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("c{n}")).collect()
    }

    #[test]
    fn pages_follow_one_another_without_gap_or_repetition() {
        let mut seen = Vec::new();
        let mut query = PageQuery::read(Some("limit=3")).unwrap();
        for _ in 0..10 {
            let page = query.cut(names(8), String::clone, |name| Some(name.clone()));
            assert!(page.items.len() <= 3);
            seen.extend(page.items);
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, names(8));
    }

    #[test]
    fn a_cursor_whose_item_is_gone_goes_on_behind_it() {
        let query = PageQuery::read(Some("after=c2x")).unwrap();
        let page = query.cut(names(5), String::clone, |name| Some(name.clone()));
        assert_eq!(page.items, ["c3", "c4"]);
        assert_eq!(page.next, None);
    }

    #[test]
    fn a_limit_that_is_no_number_is_an_error() {
        for bad in ["limit=x", "limit=0", "limit=-1"] {
            assert!(PageQuery::read(Some(bad)).is_err(), "{bad}");
        }
        let large = PageQuery::read(Some("limit=99999999")).unwrap();
        assert_eq!(large.limit, PAGE_ITEMS_MAX);
    }
}
