//! A recorder that keeps everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};

#[derive(Default)]
pub(crate) struct Recorder {
    /// By name and labels.
    series: Mutex<BTreeMap<String, Arc<Series>>>,
    /// Kind and unit, by name.
    described: Mutex<BTreeMap<String, (String, String)>>,
}

struct Series {
    name: String,
    kind: &'static str,
    labels: BTreeSet<String>,
    /// What was added, or sampled.
    values: Mutex<Vec<f64>>,
}

impl Series {
    fn push(&self, value: f64) {
        self.values.lock().unwrap().push(value);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.push(f64::from(u32::try_from(value).unwrap()));
    }

    fn absolute(&self, _: u64) {
        panic!("a counter is only incremented");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.push(value);
    }

    fn decrement(&self, value: f64) {
        self.push(-value);
    }

    fn set(&self, _: f64) {
        panic!("several clients share a gauge, so none sets it");
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

impl Recorder {
    fn series(&self, key: &Key, kind: &'static str) -> Arc<Series> {
        let mut all = self.series.lock().unwrap();
        let series = all.entry(key.to_string()).or_insert_with(|| {
            Arc::new(Series {
                name: key.name().to_owned(),
                kind,
                labels: key.labels().map(|label| label.key().to_owned()).collect(),
                values: Mutex::default(),
            })
        });
        assert_eq!(series.kind, kind, "{key}");
        Arc::clone(series)
    }

    fn describe(&self, name: &KeyName, kind: &str, unit: Option<Unit>) {
        let unit = unit
            .expect("every measurement has a unit")
            .as_str()
            .to_owned();
        let name = name.as_str().to_owned();
        let described = (kind.to_owned(), unit);
        self.described.lock().unwrap().insert(name, described);
    }

    /// Names with kind and unit, as they were described.
    pub(crate) fn described(&self) -> BTreeMap<String, (String, String)> {
        self.described.lock().unwrap().clone()
    }

    /// Names with kind, unit and labels, as they were used.
    pub(crate) fn measurements(&self) -> BTreeMap<String, (String, String, BTreeSet<String>)> {
        let described = self.described();
        let all = self.series.lock().unwrap();
        let row = |series: &Arc<Series>| {
            let unit = described.get(&series.name).map(|(_, unit)| unit.clone());
            let unit = unit.unwrap_or_else(|| panic!("{} is not described", series.name));
            let row = (series.kind.to_owned(), unit, series.labels.clone());
            (series.name.clone(), row)
        };
        all.values().map(row).collect()
    }

    /// Names with kind and unit, as they were used.
    pub(crate) fn units(&self) -> BTreeMap<String, (String, String)> {
        let rows = self.measurements().into_iter();
        rows.map(|(name, (kind, unit, _))| (name, (kind, unit)))
            .collect()
    }

    /// Everything that was sampled, in order.
    pub(crate) fn samples(&self, name: &str) -> Vec<f64> {
        let all = self.series.lock().unwrap();
        let named = all.values().filter(|series| series.name == name);
        named
            .flat_map(|series| series.values.lock().unwrap().clone())
            .collect()
    }

    /// A gauge, or a counter, over all labels.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.samples(name).iter().sum()
    }

    /// Every name and label.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.series.lock().unwrap().keys().cloned().collect()
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "counter", unit);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "gauge", unit);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, "histogram", unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key, "gauge"))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key, "histogram"))
    }
}
