//! A subscriber that keeps everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata};

#[derive(Clone, Default)]
pub(crate) struct Subscriber {
    heard: Arc<Mutex<Vec<Heard>>>,
    serial: Arc<AtomicU64>,
}

/// A span or an event.
struct Heard {
    metadata: &'static Metadata<'static>,
    /// Of a span.
    id: Option<u64>,
    values: BTreeMap<String, String>,
}

struct Values<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Values<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

type Told = BTreeMap<String, (String, BTreeSet<String>)>;

impl Subscriber {
    fn documented(&self, spans: bool) -> Told {
        let mut told = Told::new();
        for heard in &*self.heard.lock().unwrap() {
            let metadata = heard.metadata;
            if metadata.target() != "leasehold" || metadata.is_span() != spans {
                continue;
            }
            let fields = metadata
                .fields()
                .iter()
                .map(|field| field.name().to_owned());
            let fields = fields.filter(|name| name != "message").collect();
            let level = metadata.level().to_string().to_lowercase();
            let before = told.insert(metadata.name().to_owned(), (level.clone(), fields));
            assert!(before.is_none_or(|before| before == told[metadata.name()]));
        }
        told
    }

    /// The names of spans, with level and fields.
    pub(crate) fn spans(&self) -> Told {
        self.documented(true)
    }

    /// The names of events, with level and fields.
    pub(crate) fn events(&self) -> Told {
        self.documented(false)
    }

    /// The values that a field had.
    pub(crate) fn values(&self, name: &str, field: &str) -> BTreeSet<String> {
        let heard = self.heard.lock().unwrap();
        let named = heard.iter().filter(|heard| heard.metadata.name() == name);
        named
            .filter_map(|heard| heard.values.get(field).cloned())
            .collect()
    }

    /// Whether there was such an event with a field of this value; of any, for an empty one.
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        let heard = self.heard.lock().unwrap();
        let mut named = heard.iter().filter(|heard| heard.metadata.name() == name);
        named.any(|heard| value.is_empty() || heard.values.values().any(|text| text == value))
    }

    /// Every name and value, of whatever target.
    pub(crate) fn texts(&self) -> Vec<String> {
        let heard = self.heard.lock().unwrap();
        let text = |heard: &Heard| format!("{} {:?}", heard.metadata.name(), heard.values);
        heard.iter().map(text).collect()
    }
}

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = 1 + self.serial.fetch_add(1, Ordering::SeqCst);
        let mut values = BTreeMap::new();
        span.record(&mut Values(&mut values));
        self.heard.lock().unwrap().push(Heard {
            metadata: span.metadata(),
            id: Some(id),
            values,
        });
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut heard = self.heard.lock().unwrap();
        let span = heard
            .iter_mut()
            .find(|heard| heard.id == Some(span.into_u64()));
        values.record(&mut Values(&mut span.expect("the span is known").values));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut values = BTreeMap::new();
        event.record(&mut Values(&mut values));
        self.heard.lock().unwrap().push(Heard {
            metadata: event.metadata(),
            id: None,
            values,
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
