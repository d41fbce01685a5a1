//! Curves: means with their confidence intervals over values of a setting, which stand at equal distances.

use super::{
    BOTTOM, Bars, COLOURS, Figure, HEIGHT, LEFT, RIGHT, Scale, Spread, TOP, WIDTH, draw_x_title, escaped,
    number, quoted, stroke,
};
use std::fmt::Write;

impl Figure {
    pub(super) fn draw_curves(&self, out: &mut String, x_title: &str, groups: &[String], curves: &[Bars]) {
        let values = curves.iter().flat_map(|curve| &curve.values).flatten();
        // An interval that goes below zero says nothing of a zero that was measured.
        let least = |spread: &Spread| if spread.least > 0.0 { spread.least } else { spread.median };
        let all = values.flat_map(|spread| [spread.median, least(spread), spread.most]);
        let y = Scale::new(all, HEIGHT - BOTTOM, TOP, true);
        self.draw_scale(out, &y);
        let width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
        // Curves stand a little beside each other, so that no interval hides another.
        let x = |group: usize, curve: usize| {
            LEFT + width * (group as f64 + 0.5) + 6.0 * (curve as f64 - (curves.len() as f64 - 1.0) / 2.0)
        };
        for (group, name) in groups.iter().enumerate() {
            let _ = write!(
                out,
                "<text text-anchor=\"middle\" x=\"{:.1}\" y=\"{}\">{}</text>",
                LEFT + width * (group as f64 + 0.5),
                HEIGHT - BOTTOM + 18.0,
                escaped(name)
            );
        }
        draw_x_title(out, x_title);
        for (index, curve) in curves.iter().enumerate() {
            let points =
                || curve.values.iter().enumerate().filter_map(|(group, value)| Some((group, (*value)?)));
            let mut path = String::new();
            for (group, spread) in points() {
                let _ = write!(path, "{:.1},{:.1} ", x(group, index), y.at(spread.median));
            }
            let colour = index % COLOURS;
            let _ = write!(
                out,
                "<polyline fill=\"none\" {} stroke-width=\"2\" stroke-linejoin=\"round\" points=\"{}\"/>",
                stroke(index),
                path.trim_end()
            );
            for (group, spread) in points() {
                let (center, at) = (x(group, index), y.at(spread.median));
                if spread.least < spread.most {
                    let (low, high) = (y.at(spread.least.max(y.from)), y.at(spread.most));
                    let _ = write!(
                        out,
                        "<path class=\"range\" fill=\"none\" d=\"M{center:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\"/>",
                        center - 4.0,
                        center - 4.0
                    );
                }
                let _ = write!(
                    out,
                    "<circle cx=\"{center:.1}\" cy=\"{at:.1}\" r=\"4\" fill=\"var(--c{colour})\"><title>{} {}: {} ({} to {})</title></circle>",
                    escaped(&groups[group]),
                    escaped(&curve.name),
                    number(spread.median),
                    number(spread.least),
                    number(spread.most)
                );
            }
        }
    }

    pub(super) fn curves_csv(&self, out: &mut String, groups: &[String], curves: &[Bars]) {
        let _ = writeln!(out, "value,name,{},from,to", quoted(&format!("mean of {}", self.y)));
        for (group, name) in groups.iter().enumerate() {
            for (curve, spread) in
                curves.iter().filter_map(|curve| Some((curve, curve.values.get(group).copied()??)))
            {
                let _ = writeln!(
                    out,
                    "{},{},{},{},{}",
                    quoted(name),
                    quoted(&curve.name),
                    spread.median,
                    spread.least,
                    spread.most
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    #[test]
    fn a_curve_has_its_points_intervals_and_data() {
        let spread = |median: f64, half: f64| {
            Some(Spread { median, least: median - half, most: median + half, is_at_least: false })
        };
        let curves = vec![
            Bars { name: "one".to_owned(), values: vec![spread(10.0, 2.0), None, spread(30.0, 0.0)] },
            Bars { name: "two".to_owned(), values: vec![spread(5.0, 9.0)] },
        ];
        let groups = ["1", "2", "4"].map(str::to_owned).to_vec();
        let kind = Kind::Curves { x: "memory".to_owned(), groups, curves };
        let figure = Figure { id: "c".to_owned(), title: "t".to_owned(), y: "y".to_owned(), kind };
        let svg = figure.svg();
        assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"range\"").count()), (3, 2));
        let path = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert_eq!(path.split(' ').count(), 2);
        // An interval that goes below zero is drawn down to it.
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(
            figure.csv().lines().collect::<Vec<_>>()[1..],
            ["\"1\",\"one\",10,8,12", "\"1\",\"two\",5,-4,14", "\"4\",\"one\",30,30,30"]
        );
    }
}
