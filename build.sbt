// The JVM engine of format("ledger"). `make shim` runs this build; docs/how-to/jvm.md describes it.

// The jars of the PySpark that this checkout uses: Spark itself, Arrow, ZooKeeper, zstd.
lazy val sparkJars = settingKey[File]("The folder of Spark's jars")
lazy val sparkVersion = settingKey[String]("The version of Spark in this folder")

ThisBuild / scalaVersion := "2.13.18"
ThisBuild / version := "0.2.0"

lazy val shim = (project in file("jvm-shim"))
  .settings(
    name := "ledgerlog-spark",
    sparkJars := file(sys.props.getOrElse("spark.jars.folder", sys.error("set -Dspark.jars.folder"))),
    sparkVersion := {
      val Core = """spark-core_2\.13-(.+)\.jar""".r
      sparkJars.value.list.collectFirst { case Core(version) => version }
        .getOrElse(sys.error(s"${sparkJars.value} has no spark-core jar for Scala 2.13"))
    },
    // Not the folders below: `connect-repl` has other versions of the same classes.
    Compile / unmanagedJars := (sparkJars.value * "*.jar").classpath,
    Test / unmanagedJars := (Compile / unmanagedJars).value,
    autoScalaLibrary := false,
    libraryDependencies += "org.scalameta" %% "munit" % "1.1.1" % Test,
    scalacOptions ++= Seq("-deprecation", "-feature", "-unchecked", "-Xlint", "-Werror", "-release", "17"),
    javacOptions ++= Seq("--release", "17"),
    // Spark uses the engine only if its own minor version is the one of the build.
    Compile / resourceGenerators += Def.task {
      val file = (Compile / resourceManaged).value / "ledgerlog-spark.properties"
      IO.write(file, s"spark.version=${sparkVersion.value}\n")
      Seq(file)
    }.taskValue,
    Test / fork := true,
    Test / baseDirectory := (ThisBuild / baseDirectory).value,
    Test / javaOptions ++= Seq(
      "--add-opens=java.base/java.nio=ALL-UNNAMED",
      "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
      "-XX:TieredStopAtLevel=1"
    ),
    Compile / packageBin / artifactPath := target.value / "ledgerlog-spark.jar"
  )
